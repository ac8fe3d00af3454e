"""Names that are all but a known one."""

import pytest

from eaglemon.core.problems import misspelt

KNOWN = ("tp-size", "dtype", "mem-fraction-static", "enable-metrics", "host", "page-size")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("tp-sise", "tp-size"),
        ("tp-sze", "tp-size"),
        ("dtpye", "dtype"),
        ("hots", "host"),
        ("mem-fracton-static", "mem-fraction-static"),
        ("mem_fraction_static", "mem-fraction-static"),
        ("disable-metrics", None),
        ("no-prefix-caching", None),
        ("mem-fraction-dynamic", None),
        ("tp", None),
        ("", None),
        ("pt", None),
    ],
)
def test_misspelt(name: str, meant: str | None) -> None:
    assert misspelt(name, KNOWN) == meant
