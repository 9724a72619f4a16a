"""Hooks of the site: roles of docstrings, such as that of ``:class:`Run```, and what keyboards and readers need."""

import re
from typing import Any


def on_config(config: Any, **_: object) -> None:
    """Without a page for missing addresses: from an address of any depth, it would not find its style."""
    config.theme.static_templates.discard("404.html")


def on_page_content(html: str, **_: object) -> str:
    """The page, in which ``:func:`` and its like before code are left out."""
    return re.sub(r":(?:attr|class|data|exc|func|meth|mod):(<code>)~?", r"\1", html)


def on_post_page(output: str, **_: object) -> str:
    """The page, in which wide tables, which scroll, can be reached by keyboard, and lists of contents have names of
    their own: those of their headings, as classes of two modules may be called alike."""
    output = re.sub(
        r"<table>(?=\s*<thead>\s*<tr>(?:\s*<th[^>]*>.*?</th>){4})", '<table tabindex="0">', output
    )
    link = r'href="#([^"]+)" class="md-nav__link">\s*<span class="md-ellipsis">(?:(?!</a>).)*</a>'
    name = r'\s*<nav class="md-nav" aria-label="'
    return re.sub(rf'({link}{name})[^"]*"', r'\1\2"', output, flags=re.S)
