"""Check sums of event files are those of the standard."""

from fedsim.tracking.events import crc32c


def test_check_sums_are_those_of_the_standard() -> None:
    """RFC 3720, appendix B.4."""
    assert crc32c(b"\x00" * 32) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
