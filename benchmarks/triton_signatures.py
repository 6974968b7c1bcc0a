"""Argument types and constants of a Triton kernel that nobody calls: read off its source.

Libraries of kernels come without a list of what each is called with, and without a GPU none can be called. What a
parameter is follows from what the kernel does with it: an address, if it (or something reckoned from it) is where
``tl.load`` or ``tl.store`` or a block pointer begins. Element types and sizes follow from names, as these libraries
give them, from the kernel's own heuristics, and from its autotune configurations. ``OVERRIDES`` of
``triton_overrides.py`` has what is not said there.
"""

from __future__ import annotations

import ast
import importlib
import math
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

_ADDRESSED = re.compile(r"load|store|atomic_\w+|make_block_ptr|make_tensor_descriptor|advance")
_SAME_ADDRESS = frozenset(["multiple_of", "max_contiguous", "max_constancy", "advance", "make_block_ptr"])

# Element types by the name of the pointer; the first that matches decides.
_ELEMENTS = (
    (re.compile(r"cu_?(seq)?_?lens?\w*|\w*_?offsets?(_ptr)?|\w*labels?(_ptr)?|target(_ptr)?|[yY]_ptr__label"), "i64"),
    (
        re.compile(
            r"\w*(indices|index|_idx|_ids|ids_ptr|seqlens|counts?|locks?|positions?|lengths?|block_table)(_ptr)?|Lock"
        ),
        "i32",
    ),
    (
        re.compile(
            r"(d?h0|d?ht|initial_state|final_state|hx|lse|L|LSE|delta|m|M|D|A_log|dt_bias|(r|R)(std|STD)|(m|M)ean)(_ptr)?"
            r"|\w*(mean|rstd|RSTD|loss|logsumexp|lse|scale|fp32|_acc|delta)(_ptr)?"
        ),
        "fp32",
    ),
)
_FLOATS = re.compile(
    r"\w*eps(ilon)?|\w*scale|temperature|alpha|beta\d?|gamma|p|dropout\w*|lr|\w*(weight|decay|_limit|threshold|bound|factor|"
    r"smoothing|softcap|coef\w*|normalizer|temp|inv_\w+|sqrt_\w+)|lse_square_scale|max_val|\w*_low|\w*_high|offset_float"
)
_FALSE = re.compile(
    r"IS_VARLEN|VARLEN|.*_VARLEN|HAS_CU_SEQLENS|USE_CU_SEQLENS|TRANSPOSE_STATE.*|USE_TMA|DEBUG.*|INTERPRET"
)
_VARIABLE_LENGTH = re.compile(
    r"cu_?seqlens\w*|chunk_indices\w*|chunk_offsets\w*|split_(indices|offsets)|token_indices|offsets"
)
_SIZES: tuple[tuple[re.Pattern[str], int], ...] = tuple(
    (re.compile(pattern), value)
    for pattern, value in (
        (r"BT|BTT", 64), (r"BC|BS_SUB|BTS|BLS", 16), (r"BS|BL|BLOCK_T|BV|BK|BD|BN|BM|BR|BX|BB|BLOCK_[KVDS]|BTL", 32),
        (r"NT|NS|NC|NK|NV|NG|NB|NH|NR|NL|NM", 4), (r"B|Z|BATCH", 2), (r"HQ|HV|HK", 8), (r"H|G|HO|NUM_HEADS|N_HEADS", 4),
        (r"K|V|D|DK|DV|HEAD_DIM|HEAD|DIM|d|R|BLOCK_DMODEL|hd|head_dim|D_HEAD|KV|F", 64), (r"S|STAGE|STAGES", 4),
        (r"T|N|M|L|SEQ|N_CTX|V_SIZE|NCTX", 1024), (r"W|BW|KERNEL_SIZE|WIDTH|kernel_size|C_W", 4),
        (r"GROUP_?(SIZE)?_?M?", 8), (r"BLOCK_ROW", 16),
        (r"BLOCK_SIZE_[MNK]|BLOCK_[MN]\d?|BLOCK_SIZE_[HWO]\w?", 32), (r"BLOCK\w*|\w*BLOCK_SIZE\w*|BLK\w*|TILE\w*", 256),
        (r"\w*(NUM_SMS?|num_sms?)\w*", 64), (r"\w*(STAGES|stages)\w*", 2), (r"\w*(NUM|num|N|n)_\w+", 8),
        (r"\w*(DIM|dim|SIZE|size|cols|COLS)\w*", 64), (r"\w*stride\w*", 1024), (r"[A-Z]\w?", 16),
    )
)  # fmt: skip
_WORDS: Mapping[str, Any] = {
    "ACTIVATION": "swish", "activation": "swish", "REDUCTION": "mean", "reduction": "mean",
    "ALLOW_TF32": False, "allow_tf32": False, "INPUT_PRECISION": "ieee", "DOT_PRECISION": "ieee",
    "SOLVE_TRIL_DOT_PRECISION": "ieee", "scale": 0.125, "SCALE": 0.125, "lse_square_scale": 0.0, "ignore_index": -100,
    "TEMPERATURE": 0.9, "beta": 0.5, "BETA": 0.04, "EPS_LOW": 0.2, "EPS_HIGH": 0.2, "DELTA": 0.5, "eps": 1e-6,
    "pre_eps": 1e-6, "sinkhorn_eps": 1e-6, "label_smoothing": 0.1, "gate_multiplier": 1.0, "down_multiplier": 1.0,
    "post_mult": 2.0, "logit_scale": 1.0, "logit_softcapping": 30.0, "SAPO_TEMP_POS": 1.0, "SAPO_TEMP_NEG": 1.05,
    "mask_val": -1e9, "offset": 0.0, "casting_mode": 0, "CHUNK_LEN": 64, "seq_len": 1024, "dilation": 1, "TMAX": 8,
    "rows_per_program": 8, "rows_per_modulation": 8, "MAX_BLOCKS": 8, "K_POW2": 64, "BLOCK_M_TOKEN": 32, "E": 8,
    "n_cols": 1024, "V_TOTAL": 4096, "V_START": 0, "SPLIT": 4, "hidden_dim": 1024, "ffn_size": 1024, "bs": 2,
    "TOKENS_PER_TILE": 8, "TOKENS_PER_BLOCK": 8, "E_POW2": 8, "channels_per_group": 16, "cos_bs": 1, "rd": 64,
    "pad_rd": 64, "pad_hd": 64, "batch_size": 2, "max_CG_iteration": 8, "MAX_CG_STEP": 8, "T_BUCKET": 16, "L_IN": 4,
    "L_OUT": 4, "MIN_LEVEL": 0, "MAX_LEVEL": 4, "HC": 4, "LOSS_TYPE": "grpo", "PADDING_SIDE": "left",
    "num_householder": 2, "hidden_size": 1024, "num_warps": 4, "NUM_ITERS": 8,
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """One kernel with one set of argument types, as ``triton.compile`` wants it."""

    kernel: Any
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    options: Mapping[str, Any]
    aligned: tuple[str, ...] = ()

    def source(self) -> Any:
        """Its ``ASTSource``; the arguments in ``aligned`` are multiples of 16, as they are in practice."""
        names = list(self.signature)
        return importlib.import_module("triton.compiler").ASTSource(
            self.kernel,
            dict(self.signature),
            dict(self.constants),
            {(names.index(name),): [["tt.divisibility", 16]] for name in self.aligned},
        )


@dataclass(frozen=True)
class Override:
    """What is given by hand for one kernel: argument types, constants, options."""

    types: Mapping[str, str] = field(default_factory=dict[str, str])
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


class _Tensor:
    """Stands for a tensor where a heuristic asks whether there is one, and for its type and size."""

    dtype = "bfloat16"
    shape = (2, 1024, 4, 64)

    def stride(self, *_: int) -> int:
        return 64

    def numel(self) -> int:
        return 2 * 1024 * 4 * 64

    def element_size(self) -> int:
        return 2

    def dim(self) -> int:
        return 4


def unwrapped(kernel: Any) -> tuple[Any, list[Any], dict[str, Any]]:
    """The jit function under autotuners and heuristics, the autotuner's configurations, and the heuristics by name."""
    configs: list[Any] = []
    heuristics: dict[str, Any] = {}
    while not hasattr(kernel, "params"):
        configs = configs or list(getattr(kernel, "configs", ()))
        heuristics.update(getattr(kernel, "values", None) or {})
        kernel = kernel.fn
    return kernel, configs, heuristics


def calls(kernel: Any, override: Override, default: str = "bf16") -> Iterator[Call]:
    """Ways to call a kernel, the likeliest first: Triton's front end says which of them it takes.

    The first that it takes is the one to compile: types as the names say, then f16 and f32 for all that is no index;
    each with two of the autotuner's configurations, a quarter and half up by the size of their tiles.
    """
    function, configs, heuristics = unwrapped(kernel)
    by_size = sorted(configs, key=_tile) or [None]
    for config in dict.fromkeys([by_size[len(by_size) // 4], by_size[len(by_size) // 2]]):
        for elements in ({}, {"bf16": "fp16"}, {"fp32": default}, {"bf16": "fp32"}):
            yield _call(function, config, heuristics, override, default, elements)


def _tile(config: Any) -> int:
    return math.prod(value for value in config.kwargs.values() if isinstance(value, int) and value > 0)


def _call(
    function: Any,
    config: Any,
    heuristics: Mapping[str, Any],
    override: Override,
    default: str,
    instead: Mapping[str, str],
) -> Call:
    pointers = addressed(function)
    chosen: dict[str, Any] = {**(config.kwargs if config is not None else {}), **override.constants}
    options = {**_options(config), **override.options}
    arguments: dict[str, Any] = {}
    signature: dict[str, str] = {}
    for parameter in function.params:
        name = parameter.name
        signature[name] = override.types.get(name) or _type(parameter, pointers, default, instead)
        if name not in override.types and name not in override.constants and _VARIABLE_LENGTH.fullmatch(name):
            signature[name] = "constexpr"
            chosen.setdefault(name, None)
        if signature[name] == "constexpr":
            arguments[name] = chosen[name] if name in chosen else _constant(parameter)
        else:
            arguments[name] = _Tensor() if signature[name].startswith("*") else _size(name) or 16
    arguments.update({name: value for name, value in options.items() if name not in arguments})
    for name, heuristic in heuristics.items():
        if name not in override.constants:
            try:
                arguments[name] = heuristic(arguments)
            except Exception:  # it asks for more than is known here
                arguments.setdefault(name, True)
            if isinstance(arguments[name], _Tensor):
                arguments[name] = True
    for name in ("num_warps", "num_stages"):
        if name in heuristics:
            options[name] = arguments[name]
    constants = {name: arguments[name] for name, kind in signature.items() if kind == "constexpr"}
    aligned = tuple(n for n, kind in signature.items() if kind[0] == "*" or (kind == "i32" and "stride" in n.lower()))
    return Call(function, signature, constants, options, aligned)


def _options(config: Any) -> dict[str, Any]:
    if config is None:
        return {"num_warps": 4, "num_stages": 2}
    # Triton's AMD back end takes two stages where CUDA's takes more.
    return {"num_warps": config.num_warps, "num_stages": min(config.num_stages, 2)}


def _type(parameter: Any, pointers: frozenset[str], default: str, instead: Mapping[str, str]) -> str:
    name = parameter.name
    if parameter.is_constexpr:
        return "constexpr"
    if name in pointers:
        bare = re.sub(r"_?(ptrs?|pointer)$", "", name)
        for pattern, element in _ELEMENTS:
            if pattern.fullmatch(name) or pattern.fullmatch(bare):
                return "*" + instead.get(element, element)
        return "*" + instead.get(default, default)
    if parameter.annotation_type:
        return str(parameter.annotation_type)
    has_float = isinstance(parameter.default, float) if parameter.has_default else False
    return "fp32" if has_float or _FLOATS.fullmatch(name) else "i32"


def _constant(parameter: Any) -> Any:
    name = parameter.name
    if name.lower().endswith("dtype"):
        return importlib.import_module("triton.language").bfloat16
    if name in _WORDS:
        return _WORDS[name]
    if parameter.has_default and parameter.default is not None:
        return getattr(parameter.default, "value", parameter.default)
    if _FALSE.fullmatch(name):
        return False
    size = _size(name)
    flag = re.match(
        r"(USE|HAS|IS|STORE|OUTPUT|SAVE|APPLY|DO|RETURN|COMPUTE|REVERSE|LOAD|ADD|WITH|FUSE|ENABLE|has|is|use)_?", name
    )
    if flag or size is None:
        return not name.startswith("RE")
    return size


def _size(name: str) -> int | None:
    return next((value for pattern, value in _SIZES if pattern.fullmatch(name)), None)


def addressed(function: Any) -> frozenset[str]:
    """The parameters that memory is addressed through."""
    return _addressed(function, ())


def _addressed(function: Any, above: tuple[str, ...]) -> frozenset[str]:
    if function.fn.__name__ in above or len(above) > 6:
        return frozenset()
    tree = _tree(function)
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                _assign(target, node.value, assigned)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            _assign(node.target, node.value, assigned)
    reached: set[str] = set()
    waiting = [name for node in ast.walk(tree) if isinstance(node, ast.Call) for name in _bases(node, function, above)]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += [leaf for value in assigned.get(name, ()) for leaf in _leaves(value)]
    return frozenset(reached & {parameter.name for parameter in function.params})


@cache
def _tree_of(source: str) -> ast.AST:
    return ast.parse(textwrap.dedent(source))


def _tree(function: Any) -> ast.AST:
    return _tree_of(function.src)


def _assign(target: ast.expr, value: ast.expr, assigned: dict[str, list[ast.expr]]) -> None:
    if isinstance(target, ast.Name):
        assigned.setdefault(target.id, []).append(value)
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for part, of in zip(target.elts, value.elts, strict=True):
            _assign(part, of, assigned)


def _bases(call: ast.Call, function: Any, above: tuple[str, ...]) -> list[str]:
    """Names at which the addresses begin that a call is given."""
    called = call.func
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "tl":
        first = [*call.args[:1], *(k.value for k in call.keywords if k.arg in ("base", "pointer"))]
        return [leaf for value in first for leaf in _leaves(value)] if _ADDRESSED.fullmatch(name) else []
    if isinstance(called, ast.Attribute) and name in ("load", "store") and isinstance(called.value, ast.Name):
        return [called.value.id]
    helper = function.fn.__globals__.get(name)
    if helper is None or not hasattr(helper, "params"):
        return []
    inner = _addressed(helper, (*above, function.fn.__name__))
    names = [parameter.name for parameter in helper.params]
    given = [*zip(names, call.args, strict=False), *((k.arg or "", k.value) for k in call.keywords)]
    return [leaf for parameter, value in given if parameter in inner for leaf in _leaves(value)]


def _leaves(node: ast.expr) -> list[str]:
    """The names that may be the address in a sum: what stands leftmost."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        return _leaves(node.left)
    if isinstance(node, ast.IfExp):
        return _leaves(node.body) + _leaves(node.orelse)
    if isinstance(node, ast.Subscript):
        return _leaves(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in _SAME_ADDRESS:
            first = [*node.args[:1], *(k.value for k in node.keywords if k.arg == "base")]
            return [leaf for value in first for leaf in _leaves(value)]
        if node.func.attr == "to":
            return _leaves(node.func.value)
        if node.func.attr == "where":
            return [leaf for value in node.args[1:] for leaf in _leaves(value)]
    return []
