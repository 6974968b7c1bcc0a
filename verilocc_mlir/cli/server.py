"""The server that allocates: the options that name it, and its allocator from them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from verilocc_mlir.allocators import allocator_names
from verilocc_mlir.allocators.registry import LLVM_ALLOCATOR, MODEL
from verilocc_mlir.cli.given import needs_service
from verilocc_mlir.cli.options import click_option
from verilocc_mlir.pipeline.options import OPTIONS
from verilocc_mlir.pipeline.settings import DEFAULT_ALLOCATOR, ServerAccess, Settings
from verilocc_mlir.remote.cached_allocator import quiet_grpc

if TYPE_CHECKING:
    from verilocc_mlir.allocators import Allocator
    from verilocc_mlir.remote.allocator import RemoteAllocator
    from verilocc_mlir.remote.client import Client

_Command = TypeVar("_Command", bound=Callable[..., Any])

NONE, LOCAL = "none", "local"
"""Values of ``--server`` that are no address: allocate in this process; behind a server in this process."""

_ACCESS = tuple(defined for defined in OPTIONS if defined.of_access)
ACCESS_OPTIONS = [f"--{defined.word}" for defined in _ACCESS]
SERVER_OPTIONS = ["--server", "--server-required", *ACCESS_OPTIONS]
"""Their names, in groups for the help."""


def access_options(command: _Command) -> _Command:
    """Add the options that ``access_of`` takes."""
    for defined in reversed(_ACCESS):
        command = click_option(defined)(command)
    return command


def server_option(words: str) -> Callable[[_Command], _Command]:
    """``--server``, ``words`` being what it takes besides addresses, by default ``none``; and ``--server-required``."""
    address = click.option(
        "--server", default=NONE, show_default=True, metavar="ADDR", help=f"HOST:PORT, unix:PATH, {words}."
    )
    required = click.option(
        "--server-required",
        is_flag=True,
        help="An error where the server is down, wrong or late; else the allocator here takes its place.",
    )
    return lambda command: address(required(command))


def access_taken(options: dict[str, Any]) -> ServerAccess:
    return ServerAccess(**{defined.field: options.pop(defined.name) for defined in _ACCESS})


def asked_of_server(options: dict[str, Any]) -> dict[str, Any]:
    """``options`` with the fields of ``Settings`` in place of those about the server."""
    access = access_taken(options)
    server: str = options.pop("server")
    required: bool = options.pop("server_required")
    # Without a server, the settings hold nothing about the way to one.
    if server == NONE:
        if required:
            raise click.UsageError("--server-required needs --server")
        return options

    if options.get("model") is not None:
        raise click.UsageError("--model is of an allocation here; leave --server out, or give the model to the server")
    # The local allocator that follows the server's. It is the usual one where only the server knows the name, and where
    # a model is asked for, which may not be installed here.
    requested: str = options["allocator"]
    is_allocator_here = requested in (*allocator_names(), LLVM_ALLOCATOR) and requested != MODEL
    local = requested if is_allocator_here else DEFAULT_ALLOCATOR
    return {
        **options,
        "allocator": local,
        "server": server,
        "server_allocator": requested,
        "server_required": required,
        "access": access,
    }


def warn_missed(*reasons: str) -> None:
    """Say, where no table says it, why the server had not its part."""
    for reason in filter(None, reasons):
        click.echo(f"verilocc: warning: the allocation server had not its part: {reason}", err=True)


@contextlib.contextmanager
def client_of(server: str, access: ServerAccess) -> Generator[Client, None, None]:
    """A client of the server; of one in this process for ``local``, which ends with the block.

    Raises:
        UnsupportedError: the extra is not installed. InputError: as for ``Client``.
    """
    needs_service()
    with contextlib.ExitStack() as stack:
        with quiet_grpc():
            from verilocc_mlir.remote.client import Client

            address = server
            if server == LOCAL:
                from verilocc_mlir.service.running import serving

                address, access = stack.enter_context(serving()), ServerAccess(seconds=access.seconds)
            client = stack.enter_context(Client(address, access, shown=server))
        yield client


@contextlib.contextmanager
def allocators_for(settings: Settings) -> Generator[Sequence[Allocator] | None, None, None]:
    """What ``compile_module`` is handed: None where no server is named."""
    if not settings.server:
        yield None
        return
    with client_of(settings.server, settings.access) as client:
        from verilocc_mlir.pipeline.chosen_allocators import allocators_of

        yield allocators_of(settings, lambda s: _allocator_of(client, s))


def server_version(settings: Settings) -> str:
    """What allocates behind the server; ``""`` where none is named."""
    if not settings.server:
        return ""
    with client_of(settings.server, settings.access) as client:
        return _allocator_of(client, settings).version


def _allocator_of(client: Client, settings: Settings) -> RemoteAllocator:
    from verilocc_mlir.remote.allocator import RemoteAllocator

    return RemoteAllocator(client, allocator=settings.server_allocator)
