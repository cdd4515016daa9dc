"""Everything that a chain's future depends on, in one frozen value."""

from __future__ import annotations

import dataclasses
import math
import operator
from dataclasses import dataclass
from numbers import Real
from typing import Any

from mmsbgen.base.errors import InputError
from mmsbgen.families.mmsb.numbers.row_layout import DELTA
from mmsbgen.families.mmsb.numbers.storage import STORAGES

STEPS = ("split", "reflected", "published")
PARTNERS = ("uniform", "stratified", "shared", "shared-uniform")
NONLINK_WEIGHTS = ("exact", "balanced")
DTYPES = ("float32", "float64")
PRODUCTS = ("single", "half")


def blocks_per_sweep(n_vertices: int, size: int) -> int:
    """Iterations in which blocks of at most ``size`` vertices go through all ``n_vertices`` once."""
    return -(-n_vertices // min(size, n_vertices))


@dataclass(frozen=True)
class Schedule:
    """eps_t = a (1 + t/b)^-c; t counts iterations of star-shaped mini-batches, sweeps of block ones."""

    a: float
    b: float
    c: float

    def __post_init__(self) -> None:
        if not (0 < self.a < math.inf and 0 < self.b < math.inf and 0 <= self.c < math.inf):
            raise InputError(
                f"schedule a={self.a}, b={self.b}, c={self.c}: a and b must be positive numbers, c not negative"
            )

    def __call__(self, t: float) -> float:
        """The step size at time ``t``."""
        return float(self.a * (1.0 + t / self.b) ** -self.c)


#: The published programs' schedule: a = b^-c.
STAR_SCHEDULE = Schedule(1024.0**-0.5, 1024.0, 0.5)
#: tau = eps/2 = 0.1 (1 + s/100)^-0.6 over sweeps s.
BLOCK_SCHEDULE = Schedule(0.2, 100.0, 0.6)
#: eps of the sweeps that sample after the optimum.
SAMPLE_STEP = 0.06
#: Iterations of star-shaped mini-batches where none are asked for.
STAR_ITERATIONS = 1000
#: Sweeps of blocks after which a run ends even where its held-out log-likelihood still moves.
MOST_SWEEPS = 300
#: Share of the links held out for test, where they are at least so many.
TEST_SHARE, FEWEST_TEST_LINKS = 0.01, 10
STARTS = ("auto", "communities", "ego", "random")


@dataclass(frozen=True)
class Options:
    """How to sample.  ``None`` stands for a default that depends on the graph or on other options.

    Sizes that exceed what the graph has are clamped, and the weights with them.
    """

    n_communities: int
    iterations: int | None = None
    """None: blocks until the held-out log-likelihood has settled, stars 1000."""
    mini_batch: str = "block"
    mini_batch_size: int | None = None
    """Non-link pairs of a star, pairs of ``random-pair``, vertices of ``block``."""
    n_partners: int | None = None
    """Sampled partners of a vertex; in ``block`` mini-batches and with ``shared`` ones beside all its links."""
    partners: str = "stratified"
    """Of stars: each vertex's own (``uniform``, ``stratified``), or those that its mini-batch shares, beside all its
    links (``shared``) or with links where they are among them (``shared-uniform``).  Blocks share theirs in any case.
    """
    products: str | None = None
    """Factors of products with shared partners: ``single``, or ``half`` (16 bits, on the tensor cores of CUDA GPUs);
    ``None`` for ``half`` of blocks where the device has such cores and rows are float32, else ``single``."""
    step: str = "split"
    noise: bool | None = None
    """Whether steps draw. None: stars always; blocks first optimise, and draw in the last ``sample_sweeps`` only."""
    sample_sweeps: int = 0
    """Sweeps that draw, after the optimum; their mean becomes the memberships where ``average`` is set."""
    refine: bool = True
    """Whether blocks without noise give communities that came out empty parts of others that fall apart."""
    start: str | None = None
    """``random``, ``communities`` (Leiden), ``ego`` (nets of low conductance), or ``auto``: the best after a trial.
    None: auto for blocks, random for stars.
    """
    nonlink_weight: str = "exact"
    alpha: float | None = None
    """Concentration of phi; 1/K where None."""
    eta: tuple[float, float] = (1.0, 1.0)
    """Prior pseudo-counts (non-link, link) of theta."""
    delta: float | None = None
    """Probability of a link across communities. None: 1e-7 for stars, a hundredth of the graph's density for blocks."""
    schedule: Schedule | None = None
    theta_scale: float | None = None
    """eps of theta over eps of phi; by default one over the pairs that inform one community."""
    initial_row_sum: float | None = 1.0
    """Row sums of the start; None for the sum of the exponentials drawn, about K."""
    evaluate_every: int | None = None
    burn_in: float = 0.5
    """Share of the iterations before running means and posterior averages begin."""
    burn_in_iterations: int | None = None
    """The same as a number; sized options have it, so that a run that is resumed to more iterations keeps it."""
    average: bool = False
    """Keep the posterior mean of pi: one more array of the state's size."""
    dtype: str = "float32"
    storage: str = STORAGES[0]
    """Of rows of pi: float32 stands for ``dtype``; for stars bfloat16 and float16, rounded stochastically."""
    validation: float | None = None
    """Share of the links held out. None: 1 %, or up to 5 % where that would be fewer than 500 links."""
    test: float | None = None
    """Share of the links held out of everything, to be evaluated once at the end.

    None: 1 %, or nothing where that would be fewer than 10 links or ``validation`` is 0.
    """
    seed: int = 0

    def __post_init__(self) -> None:
        self._check_integers()
        for name in ("alpha", "delta", "theta_scale", "initial_row_sum", "burn_in", "validation", "test"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, Real):
                raise InputError(f"{name}={value!r}: it must be a number")
        for name, allowed in (
            ("step", STEPS),
            ("partners", PARTNERS),
            ("nonlink_weight", NONLINK_WEIGHTS),
            ("dtype", DTYPES),
            ("storage", STORAGES),
            ("products", (None, *PRODUCTS)),
            ("start", (None, *STARTS)),
        ):
            if getattr(self, name) not in allowed:
                raise InputError(f"{name}={getattr(self, name)!r} is not one of {', '.join(filter(None, allowed))}")
        for name in ("alpha", "initial_row_sum", "theta_scale"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InputError(f"{name}={value}: it must be a positive number")
        if len(self.eta) != 2 or not all(0 < value < math.inf for value in self.eta):
            raise InputError(f"eta={self.eta}: it must be two positive numbers, for non-links and for links")
        if self.delta is not None and not 0 < self.delta < 0.5:
            raise InputError(f"delta={self.delta}: it must lie between 0 and 0.5")
        if not 0 <= self.burn_in <= 1:
            raise InputError(f"burn_in={self.burn_in}: it is a share, between 0 and 1")
        if self.start == "auto" and not self.block:
            raise InputError(
                "start='auto' tries sweeps, which only blocks make: give stars one of communities, ego, random"
            )
        self._check_together()
        self._check_sampling()

    def _check_together(self) -> None:
        """Choices that are right by themselves but not together."""
        if self.block and self.partners == "shared-uniform":
            raise InputError(
                "partners='shared-uniform' does not go with block mini-batches, whose links always have a stratum: "
                "leave it out, or take stars (mini_batch='random-node', say)"
            )
        if self.products == "half" and (not self.shares or self.dtype != "float32"):
            listed = f"mini_batch={self.mini_batch!r} and partners={self.partners!r}"
            what = f"dtype={self.dtype!r}" if self.shares else listed
            raise InputError(
                f"products={self.products!r} does not go with {what}: it is for shared partners (blocks, or stars with "
                "partners='shared' or 'shared-uniform') in float32"
            )
        if self.storage != STORAGES[0] and (self.shares or self.dtype != "float32"):
            what = f"dtype={self.dtype!r}"
            if self.shares:
                what = f"{self.mini_batch!r} mini-batches" if self.block else f"partners={self.partners!r}"
            raise InputError(
                f"storage={self.storage!r} does not go with {what}: it is for stars (mini_batch='random-node', say) in "
                f"float32 with partners of their own; leave it out, or store rows as {STORAGES[0]}"
            )

    def _check_sampling(self) -> None:
        if not self.sample_sweeps:
            return
        if not self.phased or self.noise is False:
            raise InputError(
                f"sample_sweeps={self.sample_sweeps} follow an optimum: that is for block mini-batches whose noise is "
                "left open; stars, and blocks with noise, draw in every iteration"
            )
        if self.iterations is not None:
            raise InputError(
                f"sample_sweeps={self.sample_sweeps} come after the optimum, which iterations={self.iterations} may "
                "not reach: leave one of them out"
            )

    def _check_integers(self) -> None:
        """Make integers of every integral type Python's own, as records and checkpoints are JSON."""
        for name, least, most in (
            ("n_communities", 1, 2**24),
            ("iterations", 0, 2**32 - 1),
            ("mini_batch_size", 1, 2**31),
            ("n_partners", 1, 2**31),
            ("evaluate_every", 1, 2**32),
            ("burn_in_iterations", 0, 2**32),
            ("sample_sweeps", 0, 2**20),
            ("seed", 0, 2**64 - 1),
        ):
            value = getattr(self, name)
            if value is None and self.__dataclass_fields__[name].default is None:
                continue
            try:
                number = operator.index(value)
            except TypeError:
                raise InputError(f"{name}={value!r}: it must be an integer") from None
            if not least <= number <= most:
                raise InputError(f"{name}={number}: it must lie between {least} and {most}")
            object.__setattr__(self, name, number)

    def sized_for(self, n_vertices: int, n_links: int = 0) -> Options:
        """These options with what was left open chosen for a graph of ``n_vertices`` and ``n_links``.

        A star touches an eighth of the vertices, within 32 and 4096; a block 4096, or all; in large graphs a
        sixteenth, up to 16384, so that a launch fills a GPU; from eight blocks of 32768 on these, whose fewer launches
        save a GPU time (docs/reports/block-sizes.md: sweeps gain no less by them).  When evaluations come
        and when the burn-in ends is settled here too.  ``iterations`` stays open where the run is to end by itself.
        """
        star = max(32, min(4096, n_vertices // 8))
        block = 32768 if n_vertices >= 8 * 32768 else max(4096, min(16384, n_vertices // 16))
        density = n_links / max(1.0, n_vertices * (n_vertices - 1) / 2)
        whole = dataclasses.replace(
            self,
            iterations=STAR_ITERATIONS if self.iterations is None and not self.block else self.iterations,
            start=self.start or ("auto" if self.block else "random"),
            delta=self.delta or (min(max(density / 100, 1e-9), 1e-3) if self.block else DELTA),
            mini_batch_size=self.mini_batch_size or (block if self.block else star),
            n_partners=self.n_partners or (512 if self.block else 256 if self.shares else 32),
        )
        sweep = blocks_per_sweep(n_vertices, whole.size) if whole.block else 1
        every = whole.evaluate_every or (2 * sweep if whole.iterations is None else max(1, whole.iterations // 50))
        return dataclasses.replace(whole, evaluate_every=every, burn_in_iterations=whole.burn_in_end)

    def held_out_share(self, n_links: int) -> float:
        """The share of ``n_links`` links that is held out for validation."""
        return min(0.05, max(0.01, 500 / max(1, n_links))) if self.validation is None else self.validation

    def test_share(self, n_links: int) -> float:
        """The share of ``n_links`` links that is held out for test."""
        if self.test is not None:
            return self.test
        return TEST_SHARE if self.validation != 0 and TEST_SHARE * n_links >= FEWEST_TEST_LINKS else 0.0

    @property
    def phased(self) -> bool:
        """Whether the run first optimises, without noise: block mini-batches unless noise is asked for."""
        return self.block and not self.noise

    @property
    def refines(self) -> bool:
        """Whether communities that come out empty get parts of others."""
        return self.phased and self.refine

    @property
    def shares(self) -> bool:
        """Whether the vertices of a mini-batch share their partners."""
        return self.block or self.partners in ("shared", "shared-uniform")

    @property
    def draws_noise(self) -> bool:
        """Whether the steps of the first phase draw."""
        return not self.phased and self.noise is not False

    @property
    def size(self) -> int:
        """``mini_batch_size`` of sized options."""
        assert self.mini_batch_size is not None
        return self.mini_batch_size

    @property
    def draws(self) -> int:
        """``n_partners`` of sized options."""
        assert self.n_partners is not None
        return self.n_partners

    @property
    def prior(self) -> float:
        """The concentration alpha of phi."""
        return 1.0 / self.n_communities if self.alpha is None else self.alpha

    @property
    def block(self) -> bool:
        """Whether mini-batches are blocks of vertices rather than stars."""
        return self.mini_batch == "block"

    @property
    def step_sizes(self) -> Schedule:
        """The schedule in use."""
        return self.schedule or (BLOCK_SCHEDULE if self.block else STAR_SCHEDULE)

    @property
    def crossing(self) -> float:
        """``delta`` of sized options."""
        assert self.delta is not None
        return self.delta

    @property
    def interval(self) -> int:
        """Iterations between evaluations, of sized options: as given, a fiftieth of the run, or two sweeps."""
        assert self.evaluate_every is not None
        return self.evaluate_every

    @property
    def burn_in_end(self) -> int | None:
        """First iteration whose state enters running means and posterior averages, never the start.

        None where iterations are left open: means begin after the optimum.
        """
        if self.burn_in_iterations is not None or self.iterations is None:
            return self.burn_in_iterations
        return max(1, math.ceil(self.burn_in * self.iterations))

    def as_dict(self) -> dict[str, Any]:
        """All values, for run records and checkpoints."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Options:
        """The inverse of :meth:`as_dict`."""
        schedule = values.get("schedule")
        return cls(**(values | {"schedule": Schedule(**schedule) if schedule else None, "eta": tuple(values["eta"])}))
