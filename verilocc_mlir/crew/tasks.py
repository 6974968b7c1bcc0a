"""A function called of many items at once, here in threads; ``ray_cluster.Tasks`` does it on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Protocol, TypeVar

_Item = TypeVar("_Item")


class Tasks(Protocol[_Item]):
    """What items are given to.

    Its length is how many have not ended. ``start`` has the function called of an item. ``ended`` waits until something
    has ended, and gives each item that has with its result. ``cancel`` ends all of them, and what they have started.
    """

    def __len__(self) -> int: ...
    def start(self, item: _Item) -> None: ...
    def ended(self) -> Iterable[tuple[_Item, Any]]: ...
    def cancel(self) -> None: ...


class LocalTasks(Tasks[_Item]):
    """Tasks in threads of this process.

    Args:
        function: what is called of each item.
        at_once: how many threads.
        stop: ends what the threads wait for.
    """

    def __init__(self, function: Callable[[_Item], Any], at_once: int, stop: Callable[[], None]) -> None:
        self._function = function
        self._threads = ThreadPoolExecutor(at_once)
        self._stop = stop
        self._items: dict[Future[Any], _Item] = {}

    def __len__(self) -> int:
        return len(self._items)

    def start(self, item: _Item) -> None:
        self._items[self._threads.submit(self._function, item)] = item

    def ended(self) -> list[tuple[_Item, Any]]:
        done, _ = wait(self._items, return_when=FIRST_COMPLETED)
        return [(self._items.pop(future), future.result()) for future in done]

    def cancel(self) -> None:
        for future in self._items:
            future.cancel()
        self._stop()
        self._threads.shutdown()
        self._items.clear()


def as_ready(tasks: Tasks[_Item], items: Iterable[_Item], at_once: int) -> Generator[tuple[_Item, Any], None, None]:
    """Each item with its result, in the order in which they are ready; when that is given up, all is ended.

    Items are taken as there is room: one more than are done at once, so that none waits while the caller has a result.
    """
    try:
        for item in items:
            tasks.start(item)
            while len(tasks) > at_once:
                yield from tasks.ended()
        while len(tasks):
            yield from tasks.ended()
    finally:
        tasks.cancel()
