"""A plain C program of the same iteration on one thread: the denominator of every speed-up.

The paper compares with "an efficient sequential baseline version" in C++ (its section 3.1); this is ours.  The
stages have the names and the arguments of the family's kernels, so that whatever is given to a kernel can be given
to the baseline, and both are checked against the same reference::

    seconds = Baseline("float32").run("update_phi", values, k=1024)

====================  ==========================================================================================
sample_partners       stage 2: n partners of every vertex, drawn uniformly, each pair looked up; of R iterations
update_phi            stage 3: gradient over n partners' rows, then a step; rows go unnormalised to the spares
update_pi             stage 4: normalise the new rows; old and new rows change places
theta_partial         stage 5: sums of responsibilities over the pairs of the mini-batch (``n_groups`` may be 1)
theta_end             stages 5 and 6: add groups up, move theta, normalise its link column
update_beta           stage 6 alone, as a chain starts
perplexity_pairs      p(y = 1) of every held-out pair
perplexity_sum        log-likelihoods of the held-out pairs; one row of sums
====================  ==========================================================================================

It is compiled once with the system's C compiler at :data:`FLAGS` (``-O3``): the platform's basic instruction set,
strict floating-point arithmetic, no vectors written by hand.  Subexpressions that do not depend on the inner loop
stand outside it, and one reciprocal a partner replaces its K divisions.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from baseline._library import FLAGS, compiler_version, load
from mmsbgen.base.errors import InputError
from mmsbgen.families.mmsb.numbers.row_layout import row_length

__all__ = ["FLAGS", "STAGES", "Baseline", "compiler_version"]

Form = Literal["paper", "fused"]
StepName = Literal["published", "reflected"]

_GRAPH = (
    "link_buckets:u64* link_n_buckets:u32 link_seed0:u64 link_seed1:u64 "
    "held_buckets:u64* held_n_buckets:u32 held_seed0:u64 held_seed1:u64"
)
_RANDOM = "seed:u64 iteration:u32"
_PAIRS = "pi:real* slots:u32* beta:real* pairs_a:u32* pairs_b:u32*"
_SIZES = "k_count:u64 ld:u64"
# Parameters of the C functions in their order: * is an array, *! an array that is written.
_DECLARATIONS = {
    "sample_partners": f"vertices:u32* sizes:u32* {_GRAPH} partners:u32*! weights:real*! n_vertices:u32 stride:u32 "
    f"n_partners:u32 n_total:u32 {_RANDOM}",
    "update_phi": "pi:real*! row_sums:real* slots:u32* spares:u32* beta:real* vertices:u32* partners:u32* "
    "weights:real* n_vertices:u32 first_vertex:u32 n_partners:u32 half_step:real alpha:real delta:real "
    f"{_RANDOM} {_SIZES} published:u32 noise:u32 fused:u32",
    "update_pi": "pi:real*! row_sums:real*! slots:u32*! spares:u32*! vertices:u32* n_vertices:u32 first_vertex:u32 "
    f"{_SIZES}",
    "theta_partial": f"{_PAIRS} pair_weights:real* counts:real*! first_pair:u64 n_pairs:u32 n_groups:u32 delta:real "
    f"{_SIZES}",
    "theta_end": f"counts:real* theta:real*! beta:real*! n_groups:u32 step:double eta_0:double eta_1:double {_RANDOM} "
    f"{_SIZES} published:u32 noise:u32",
    "update_beta": f"theta:real* beta:real*! {_SIZES}",
    "perplexity_pairs": f"{_PAIRS} probabilities:double*! published:double*! sums:double*! n_pairs:u32 delta:real "
    f"{_SIZES}",
    "perplexity_sum": "probabilities:double* published:double* sums:double* labels:u32* partial:double*! n_pairs:u32 "
    "n_samples:double",
}

#: The stages that can be run, in the order of an iteration.
STAGES = tuple(_DECLARATIONS)

# Which arrays hold indices, and of what.
_INDICES = {
    "slots": "rows",
    "spares": "rows",
    "partners": "vertices",
    "vertices": "vertices",
    "pairs_a": "vertices",
    "pairs_b": "vertices",
}


def _places(scalars: Mapping[str, Any]) -> int:
    """Places of vertices up to the last that a call uses."""
    return int(scalars.get("first_vertex", 0)) + int(scalars["n_vertices"])


# The elements that an array must have at least, from the scalars of the call.
_LENGTHS: dict[str, Callable[[Mapping[str, Any]], int]] = {
    "vertices": _places,
    "sizes": lambda s: -(-int(s["n_vertices"]) // int(s["stride"])),
    "partners": lambda s: _places(s) * int(s["n_partners"]),
    "weights": lambda s: _places(s) * int(s["n_partners"]),
    "spares": lambda s: int(s["n_vertices"]),
    "beta": lambda s: int(s["k_count"]),
    "pairs_a": lambda s: int(s.get("first_pair", 0)) + int(s["n_pairs"]),
    "pairs_b": lambda s: int(s.get("first_pair", 0)) + int(s["n_pairs"]),
    "pair_weights": lambda s: int(s.get("first_pair", 0)) + int(s["n_pairs"]),
    "probabilities": lambda s: int(s["n_pairs"]),
    "sums": lambda s: int(s["n_pairs"]),
    "published": lambda s: int(s["n_pairs"]),
    "labels": lambda s: int(s["n_pairs"]),
    "partial": lambda s: 6,
    "counts": lambda s: 2 * int(s["ld"]) * int(s["n_groups"]),
    "theta": lambda s: 2 * int(s["ld"]),
    "link_buckets": lambda s: 8 * int(s["link_n_buckets"]),
    "held_buckets": lambda s: 8 * int(s["held_n_buckets"]),
}


def _names(stage: str) -> list[str]:
    return [declared.partition(":")[0] for declared in _DECLARATIONS[stage].split()]


class Baseline:
    """The compiled baseline of one type.

    ``dtype`` is float32 or float64; ``flags`` are the compiler's, :data:`FLAGS` unless something is to be compared.
    """

    def __init__(self, dtype: Literal["float32", "float64"] = "float32", flags: tuple[str, ...] = FLAGS) -> None:
        if dtype not in ("float32", "float64"):
            raise InputError(f"the baseline has float32 and float64, not {dtype!r}")
        self.dtype = np.dtype(dtype)
        self.flags = flags
        self._library = load(dtype, flags)
        self._types: dict[str, Any] = {
            "real": ctypes.c_float if dtype == "float32" else ctypes.c_double,
            "double": ctypes.c_double,
            "u32": ctypes.c_uint32,
            "u64": ctypes.c_uint64,
        }

    @property
    def command(self) -> str:
        """Compiler and flags in words, for reports."""
        return f"{compiler_version()}, {' '.join(self.flags)}"

    def run(
        self,
        stage: str,
        values: Mapping[str, Any],
        *,
        k: int,
        step: StepName = "published",
        noise: bool = True,
        form: Form = "paper",
    ) -> float:
        """Run one stage on NumPy arrays and return the seconds that it took, by the clock inside.

        Args:
            stage: one of :data:`STAGES`.
            values: arrays and scalars by the names of the kernel's arguments; more names may be there.  Arrays are
                C-contiguous and of exactly the kernel's types; outputs are changed in place.
            k: communities; rows are stored with ``row_length(k)`` elements, padding is left alone.
            step: how update_phi and theta_end end: ``published``, or ``reflected`` (eq. 3.4 and 3.8).
            noise: whether these two draw.
            form: update_phi's gradient as in the paper (probabilities, their sum, gradient) or fused as in the kernels.

        Raises:
            InputError: an array or a scalar is missing, has another type, or is too short, or an index is outside.
            MemoryError: no room for two rows.
        """
        if stage not in _DECLARATIONS:
            raise InputError(f"the baseline has no stage {stage!r}; it has {', '.join(STAGES)}")
        if step not in ("published", "reflected"):
            raise InputError(f"the baseline has the steps published and reflected, not {step!r}")
        options = {
            "k_count": k,
            "ld": row_length(k),
            "noise": int(noise),
            "fused": int(form == "fused"),
        }
        if stage in ("update_phi", "theta_end"):
            options["published"] = int(step == "published")
        given = {**values, **options}
        missing = [name for name in _names(stage) if name not in given]
        if missing:
            raise InputError(f"the baseline's {stage} needs {', '.join(missing)}")
        given = {name: given[name] for name in _names(stage)}
        if stage == "sample_partners":
            _check_rounds(given)
        arguments = [self._argument(stage, declared, given) for declared in _DECLARATIONS[stage].split()]
        _check_indices(stage, given)
        function = self._library[stage]
        function.restype = ctypes.c_double
        seconds = float(function(*arguments))
        if seconds < 0:
            raise MemoryError(f"the baseline's {stage} found no room for its rows")
        return seconds

    def _argument(self, stage: str, declared: str, given: Mapping[str, Any]) -> Any:
        name, _, kind = declared.partition(":")
        value = given[name]
        base, star, written = kind.partition("*")
        ctype = self._types[base]
        if not star:
            return ctype(float(value) if base in ("real", "double") else int(value))
        dtype = np.dtype(ctype)
        if not isinstance(value, np.ndarray) or value.dtype != dtype or not value.flags.c_contiguous:
            what = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
            raise InputError(f"{stage}: {name} is {what}; give a C-contiguous array of {dtype}")
        if written and not value.flags.writeable:
            raise InputError(f"{stage}: {name} is read-only, but receives results")
        if name in _LENGTHS and value.size < (needed := _LENGTHS[name](given)):
            raise InputError(f"{stage}: {name} has {value.size} elements, needs {needed}")
        if name == "pi" and (value.ndim != 2 or value.shape[1] != given["ld"]):
            raise InputError(
                f"{stage}: pi is {value.shape}; its rows have {given['ld']} elements for these communities"
            )
        return ctypes.c_void_p(value.ctypes.data)


def _check_rounds(given: Mapping[str, Any]) -> None:
    """Refuse sizes by which C would divide, or below which there is nobody to draw."""
    if int(given["stride"]) < 1:
        raise InputError(f"sample_partners: stride={given['stride']}; every iteration has at least one place")
    if int(given["n_total"]) < 2:
        raise InputError(f"sample_partners: n_total={given['n_total']}; partners need at least 2 vertices")


def _check_indices(stage: str, given: Mapping[str, Any]) -> None:
    """Refuse indices that point outside, which C would follow."""
    names = _names(stage)
    limits = {
        "vertices": given["slots"].size if "slots" in names else int(given.get("n_total", 0)),
        "rows": given["pi"].shape[0] if "pi" in names else 0,
    }
    for name, of in _INDICES.items():
        if name not in names or (stage, name) == ("sample_partners", "partners"):  # these are only written
            continue
        limit = limits[of]
        if given[name].size and int(given[name].max()) >= limit:
            raise InputError(f"{stage}: {name} holds {int(given[name].max())}, but there are {limit} {of}")
    if "row_sums" in names and given["row_sums"].size < given["pi"].shape[0]:
        raise InputError(f"{stage}: row_sums has {given['row_sums'].size} elements for {given['pi'].shape[0]} rows")
