"""Every configuration there is, in a fixed order; a sample by seed; and their IR."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence

from .attention import MASKS, VALUES, Attention
from .gemm import EPILOGUES, STAGINGS, Gemm
from .instructions import BITS, TARGETS, Instruction, instructions
from .lower import to_llvm_ir

Config = Gemm | Attention
KINDS = ("gemm", "attention")
_BOTH = (False, True)

_ELEMENTS: dict[str, tuple[str, ...]] = {"gemm": tuple(BITS), "attention": ("f16", "bf16")}
AXES: dict[str, tuple[Sequence[object], ...]] = {
    "gemm": (*[(1, 2, 4)] * 5, STAGINGS, ("nk", "kn"), EPILOGUES, *[_BOTH] * 4),
    "attention": ((32, 64, 96, 128, 256), (16, 32, 64, 128), (1, 2), (1, 2, 4), VALUES, MASKS, *[_BOTH] * 4),
}
"""Values of each field after target, instruction and element, in the order of the fields."""

_TRIES = 10_000


def space(target: str, kind: str) -> Iterator[Config]:
    """All valid configurations of a target and kind, in a fixed order.

    Raises:
        ValueError: an unknown target or kind.
    """
    make = kind_of(kind)
    for instruction, element in matrix_shapes(target, kind):
        for values in itertools.product(*AXES[kind]):
            config = make(target, instruction, element, *values)
            if config.valid():
                yield config


def sample(
    count: int,
    seed: int = 0,
    targets: Sequence[str] = TARGETS,
    kinds: Sequence[str] = KINDS,
    accept: Callable[[Config], bool] = lambda config: True,
) -> Iterator[Config]:
    """``count`` different configurations, targets and kinds in turn; the same ones for the same arguments.

    Every field is drawn by itself, so that small kernels, of which there are fewer, come as often as large ones.

    Args:
        accept: which configurations to take.

    Raises:
        ValueError: an unknown target or kind, or no further configuration was found in 10,000 draws.
    """
    generator = random.Random(seed)
    pools = [(target, kind_of(kind), matrix_shapes(target, kind), AXES[kind]) for target in targets for kind in kinds]
    seen: set[Config] = set()
    while len(seen) < count:
        target, make, shapes, axes = pools[len(seen) % len(pools)]
        for _ in range(_TRIES):
            config = make(target, *generator.choice(shapes), *(generator.choice(axis) for axis in axes))
            if config not in seen and config.valid() and accept(config):
                break
        else:
            raise ValueError(f"no further configuration for {target} after {len(seen)}")
        seen.add(config)
        yield config


def kernels(
    count: int,
    seed: int = 0,
    targets: Sequence[str] = TARGETS,
    kinds: Sequence[str] = KINDS,
    accept: Callable[[Config], bool] = lambda config: True,
) -> Iterator[tuple[Config, str]]:
    """``sample`` as (configuration, LLVM IR text), made as they are asked for.

    The IR is what MLIR translates, not optimised; run ``opt -O3`` on it before llc
    (``verilocc_mlir.hooks.mlir_compile.prepare``).

    Raises:
        MissingBindingsError: no MLIR Python bindings are installed. ValueError: as ``sample``.
    """
    for config in sample(count, seed, targets, kinds, accept):
        yield config, to_llvm_ir(config.mlir(), config.target)


def kind_of(kind: str) -> Callable[..., Config]:
    """The configurations of a kind.

    Raises:
        ValueError: there is no such kind.
    """
    if kind not in KINDS:
        raise ValueError(f"no kernels of the kind {kind}: {', '.join(KINDS)}")
    return Gemm if kind == "gemm" else Attention


def matrix_shapes(target: str, kind: str) -> list[tuple[Instruction, str]]:
    """Instructions and element types of a target.

    Raises:
        ValueError: the target is unknown.
    """
    if target not in TARGETS:
        raise ValueError(f"no kernels for {target}: {', '.join(TARGETS)}")
    return [(shape, element) for element in _ELEMENTS[kind] for shape in instructions(target, element)]
