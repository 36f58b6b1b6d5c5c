"""How a server's slots are shared among its clients."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from assay.errors import OverloadedError
from assay.rpc.admission import Admission, peer_address
from assay.rpc.methods import Slots
from assay.rpc.options import ServerOptions


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:192.0.2.1:50000", "192.0.2.1"),
        ("ipv6:[2001:db8::7]:50000", "2001:db8::/64"),
        ("ipv6:%5B2001:db8::8%5D:50000", "2001:db8::/64"),
        ("ipv6:%5Bfe80::1%25eth0%5D:1", "fe80::/64"),
        ("ipv6:[::ffff:192.0.2.1]:50000", "192.0.2.1"),
        ("unix:", ""),
        ("unix:/tmp/o.sock", ""),
        ("unix:%00", ""),
        ("vsock:3:1024", "3"),
        ("odd", "odd"),
    ],
)
def test_a_client_is_known_by_its_address(peer: str, address: str) -> None:
    """Its connections count together, and so do the addresses of one IPv6 network; a unix socket is this machine."""
    assert peer_address(peer) == address


def taken(admission: Admission, stack: ExitStack, peer: str, slots: Slots = Slots.STREAMS) -> int:
    """Take slots until one is refused; return how many there were."""
    count = 0
    while True:
        try:
            stack.enter_context(admission.slot(slots, peer))
        except OverloadedError:
            return count
        count += 1


def test_one_address_cannot_take_every_slot() -> None:
    """Alone it has most of them; whoever comes later finds some free, and less is left for each."""
    admission = Admission(ServerOptions(max_open_streams=1000))
    with ExitStack() as stack:
        counts = [taken(admission, stack, f"ipv4:192.0.2.{number}:1") for number in range(4)]
        assert counts == [800, 160, 32, 7]
        assert taken(admission, stack, "ipv4:192.0.2.0:2") == 0
    with ExitStack() as stack:
        assert taken(admission, stack, "ipv4:192.0.2.9:1") == 800


def test_clients_of_this_machine_share_all_slots() -> None:
    """The local stack, at a unix socket, is limited by the whole alone."""
    admission = Admission(ServerOptions(max_open_streams=1000))
    with ExitStack() as stack:
        assert taken(admission, stack, "unix:") == 1000
        assert taken(admission, stack, "unix:", Slots.CALLS) == 1000


def test_health_is_answered_when_every_slot_is_taken() -> None:
    """Checks take no slot, and watches of health have their own."""
    admission = Admission(ServerOptions(max_open_streams=10, max_concurrent_calls=10))
    with ExitStack() as stack:
        for slots in (Slots.CALLS, Slots.STREAMS):
            taken(admission, stack, "unix:", slots)
        assert taken(admission, stack, "unix:", Slots.HEALTH_WATCHES) == 10
        for _ in range(100):
            stack.enter_context(admission.slot(Slots.NONE, "ipv4:192.0.2.1:1"))
