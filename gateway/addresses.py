"""Where the gateway may connect to: what an address has to look like, and which networks are out of bounds.

Workers and encoders live in private networks, so those are open. What answers on link-local and metadata
addresses is the machine's own cloud account, and nobody's worker.
"""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Sequence
from typing import TypeAlias
from urllib.parse import urlsplit

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

METADATA = tuple(
    map(
        ipaddress.ip_network,
        (
            "100.100.100.200/32",  # Alibaba Cloud
            "168.63.129.16/32",  # Azure's platform
            "192.0.0.192/32",  # Oracle Cloud
            "fd00:ec2::/32",  # AWS
            "fd20:ce::254/128",  # Google Cloud
        ),
    )
)
NAT64 = ipaddress.ip_network("64:ff9b::/96")


class AddressRefusedError(OSError):
    """A connection to an address that is out of bounds; nothing was sent."""

    def __init__(self, address: str) -> None:
        super().__init__(errno.EACCES, f"connections to {address} are not allowed (NG_ALLOWED_NETWORKS)")


def check_url(url: str, what: str, allowed: Sequence[Network] = ()) -> None:
    """Raise ValueError where ``url`` is not http(s)://HOST, with or without port and path, and no more.

    A host that is written as an address is checked here too; what a name resolves to, at each connection.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(f"{what} is http://HOST or https://HOST, with or without port and path") from None
    if not url.isascii() or not url.isprintable() or {" ", "\\"} & set(url):
        raise ValueError(f"{what} has printable ASCII characters alone, and no spaces")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"{what} has no user or password: keys have settings of their own")
    is_plain = port != 0 and not {"?", "#"} & set(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain:
        raise ValueError(f"{what} begins with http:// or https:// and has a host, perhaps port and path")
    address = parsed(parts.hostname)
    if address is not None and is_out_of_bounds(address, allowed):
        raise ValueError(f"{what} is in a network that is not allowed (NG_ALLOWED_NETWORKS)")


def check_address(host: str, allowed: Sequence[Network]) -> None:
    """Raise AddressRefusedError where ``host``, the numeric address of a connection, is out of bounds."""
    address = parsed(host)
    if address is None or is_out_of_bounds(address, allowed):
        raise AddressRefusedError(host)


def is_out_of_bounds(address: Address, allowed: Sequence[Network]) -> bool:
    """Whether it is link-local, multicast, reserved, or where a cloud keeps a machine's credentials."""
    if any(address in network for network in allowed):
        return False
    if address.is_link_local or address.is_multicast:
        return True
    if isinstance(address, ipaddress.IPv4Address) and address.is_reserved:
        return True
    return any(address in network for network in METADATA)


def parsed(host: str) -> Address | None:
    """Return the address that ``host`` is, the inner one where IPv6 carries one of IPv4; None for a name."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or address
