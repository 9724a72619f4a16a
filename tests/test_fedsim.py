"""The names of the package."""


def test_a_notebook_can_complete_the_names_of_the_package() -> None:
    import fedsim

    assert dir(fedsim) == sorted(fedsim.__all__)
    assert all(getattr(fedsim, name) is not None for name in fedsim.__all__)
