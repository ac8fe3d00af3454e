"""A name that no known server has: none, or not known."""

import pytest

from eaglemon.app.named_servers import find_server
from eaglemon.core.hosts import HostSpec, LinkState
from eaglemon.core.views import HostView
from eaglemon.errors import HostError, UsageError


def view(name: str, untold: str = "") -> HostView:
    return HostView(spec=HostSpec(name=name), state=LinkState.UP, untold=untold)


def test_no_server_where_every_host_has_told_its_own() -> None:
    with pytest.raises(UsageError, match="no server 'x' on h2, h3"):
        find_server("x", (), (view("h2"), view("h3")))


def test_a_host_that_has_not_told_may_have_it() -> None:
    late = view("h3", "its state folder has not answered for 7 s")
    with pytest.raises(HostError) as raised:
        find_server("x", (), (view("h2"), late))
    assert raised.value.message == (
        "h3 has not told its servers: its state folder has not answered for 7 s"
    )
