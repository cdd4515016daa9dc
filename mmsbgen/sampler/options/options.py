"""Options of the sampler, as one frozen dataclass."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import MISSING, dataclass
from typing import Any

from mmsbgen.base.declared_options import check_options, option
from mmsbgen.base.errors import InputError
from mmsbgen.families.mmsb.numbers.row_layout import DELTA
from mmsbgen.families.mmsb.numbers.sparse_rows import EVERY, MOST_ALPHA
from mmsbgen.families.mmsb.numbers.storage import STORAGES
from mmsbgen.families.mmsb.sparse.sparse_sizes import ENTRIES
from mmsbgen.sampler.options.schedule import BLOCK_SCHEDULE, STAR_SCHEDULE, Schedule

STEPS = ("split", "reflected", "published")
PARTNERS = ("uniform", "stratified", "shared", "shared-uniform")
MINI_BATCHES = ("block", "random-node", "random-node-link", "random-node-non-link")
#: Fewest communities of a run that keeps sparse rows by default.
FEWEST_SPARSE = 256


def blocks_per_sweep(n_vertices: int, size: int) -> int:
    """Number of blocks of at most ``size`` vertices that cover all ``n_vertices`` once."""
    return -(-n_vertices // min(size, n_vertices))


#: Default number of iterations of mini-batches of stars.
STAR_ITERATIONS = 1000
#: Default share of the links held out for test, and the fewest links for which it applies.
TEST_SHARE, FEWEST_TEST_LINKS = 0.01, 10
#: Most links held out by default for each: the standard error of an AUC of .9 is then .002 at most.
MOST_HELD_OUT = 20_000


@dataclass(frozen=True)
class Options:
    """Options of the sampler.  ``None`` means a default that depends on the graph or on other options.

    The command line, the estimator, the service and workers derive their options from these fields.
    Sizes larger than the graph are clamped, and the weights are adjusted.
    """

    n_communities: int = option(MISSING, "Number of communities of the model.", "python", least=1, most=2**24)
    iterations: int | None = option(
        None,
        "Iterations; by default until the held-out log-likelihood settles, or 1000 for stars.",
        "everybody",
        least=0,
        most=2**32 - 1,
        flag="-n",
    )
    mini_batch: str = option(
        "block",
        "block: blocks of vertices in turn; random-node, random-node-link, random-node-non-link: stars.",
        "advanced",
        choices=MINI_BATCHES,
        metavar="NAME",
    )
    mini_batch_size: int | None = option(
        None,
        "Non-links of a star, or vertices of a block.",
        "advanced",
        least=1,
        most=2**31,
        flag="-m",
    )
    n_partners: int | None = option(
        None,
        "Sampled partners of a vertex; blocks and shared partners have its links beside them.",
        "advanced",
        least=1,
        most=2**31,
    )
    partners: str = option(
        "stratified",
        "How partners of stars are sampled: for each vertex (uniform, stratified), or for the mini-batch, beside all "
        "links (shared) or with links only where drawn (shared-uniform). Blocks share theirs.",
        choices=PARTNERS,
        metavar="NAME",
    )
    products: str | None = option(
        None,
        "Products with shared partners: single, or half on tensor cores. Default: half for blocks in float32 where the "
        "device has tensor cores.",
        "advanced",
        choices=("single", "half"),
    )
    step: str = option("split", "How a step keeps memberships positive.", choices=STEPS)
    noise: bool | None = option(
        None, "Sample rather than optimise, in every step. Default: stars sample, blocks optimise."
    )
    sample_sweeps: int = option(
        0,
        "Sweeps that sample after the optimum; with --average their mean becomes the memberships.",
        least=0,
        most=2**20,
    )
    refine: bool = option(
        True, "Whether blocks without noise refill empty communities with parts of others, and empty needless ones."
    )
    start: str | None = option(
        None,
        "communities (Leiden), ego (nets of low conductance), random, or auto: the best of them after a trial. "
        "Default: auto; random for stars.",
        "advanced",
        choices=("auto", "communities", "ego", "random"),
    )
    nonlink_weight: str = option(
        "exact",
        "Weight of non-links: exact, or balanced as the published programs do.",
        choices=("exact", "balanced"),
        group="Model",
    )
    alpha: float | None = option(None, "Concentration of the memberships; 1/K by default.", above=0, group="Model")
    eta: tuple[float, float] = (1.0, 1.0)
    """Prior pseudo-counts (non-link, link) of theta."""
    delta: float | None = option(
        None,
        "Probability of a link across communities; by default a hundredth of the graph's density, 1e-7 for stars.",
        above=0,
        below=0.5,
        group="Model",
    )
    schedule: Schedule | None = None
    theta_scale: float | None = option(
        None, "eps of theta over that of phi; by default one over the pairs that inform a community.", "python", above=0
    )
    initial_row_sum: float | None = option(
        1.0, "Row sums at the start; None for the sum of the exponentials drawn, about K.", "python", above=0
    )
    evaluate_every: int | None = option(
        None, "Iterations between evaluations.", least=1, most=2**32, group="Held-out pairs"
    )
    burn_in: float = option(
        0.5, "Share of the iterations before running means and posterior averages begin.", "python", least=0, most=1
    )
    burn_in_iterations: int | None = option(
        None,
        "The burn-in as a number; sized options have it, so that a run that is resumed to more iterations keeps it.",
        "python",
        least=0,
        most=2**32,
    )
    average: bool = option(False, "Average pi after the optimum, or over half of -n: one more state.")
    dtype: str = option("float32", "Type of the state.", choices=("float32", "float64"))
    storage: str = option(
        STORAGES[0],
        "Type of stored rows of pi: float32 stands for --dtype; bfloat16 and float16 are for stars, and rounded "
        "stochastically.",
        "advanced",
        choices=STORAGES,
    )
    rows: str | None = option(
        None,
        "Rows of pi: dense, or sparse with their largest entries only, for many communities. Default: sparse from "
        "K = 256 on where blocks optimise in float32.",
        "advanced",
        choices=("dense", "sparse"),
    )
    entries: int = option(ENTRIES, "Entries that a sparse row keeps: 8, 16, 32 or 64.", least=8, most=64)
    validation: float | None = option(
        None,
        "Share of the links held out for validation; by default 1 %, or up to 5 % where that is fewer than 500, and "
        "20,000 links at most.",
        group="Held-out pairs",
    )
    test: float | None = option(
        None,
        "Share of the links held out of everything and evaluated at the end; by default 1 % and 20,000 links at "
        "most, or none where 1 % is fewer than 10 or --validation is 0.",
        group="Held-out pairs",
    )
    chains: int = option(
        1,
        "Chains, from different seeds, whose link probabilities are pooled; the best one gives the communities.",
        "advanced",
        least=1,
        most=256,
    )
    seed: int = option(0, "Seed of split and chain.", "everybody", least=0, most=2**64 - 1)

    def __post_init__(self) -> None:
        check_options(self)
        object.__setattr__(self, "eta", tuple(map(float, self.eta)))
        if len(self.eta) != 2 or not all(0 < value < math.inf for value in self.eta):
            raise InputError(f"eta={self.eta}: it must be two positive numbers, for non-links and for links")
        if self.start == "auto" and not self.block:
            raise InputError(
                "start='auto' tries sweeps, which only blocks make: give stars one of communities, ego, random"
            )
        self._check_together()
        if self.sample_sweeps:
            self._check_sampling()

    def _check_together(self) -> None:
        """Check combinations of options."""
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
        if self.entries & (self.entries - 1):
            raise InputError(f"entries={self.entries}: a sparse row keeps 8, 16, 32 or 64 entries")
        if self.rows == "dense" and self.entries != ENTRIES:
            raise InputError(f"entries={self.entries} is for sparse rows, and rows are dense: give rows='sparse' too")
        if self.rows != "sparse":
            return
        refused = {
            f"mini_batch={self.mini_batch!r}": not self.block,
            f"step={self.step!r}": self.step != "split",
            "noise=True": bool(self.noise),
            "average=True": self.average,
            "products='half'": self.products == "half",
            f"sample_sweeps={self.sample_sweeps} and alpha={self.prior:g} (above {MOST_ALPHA})": self.sample_sweeps > 0
            and self.n_communities > EVERY
            and self.prior > MOST_ALPHA,
        }
        if clash := next((what for what, wrong in refused.items() if wrong), None):
            raise InputError(
                f"rows='sparse' does not go with {clash}: sparse rows are for sweeps over all vertices that optimise, "
                "and that sample after the optimum; leave one of them out"
            )

    def _check_sampling(self) -> None:
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

    def sized_for(self, n_vertices: int, n_links: int = 0) -> Options:
        """These options with defaults chosen for a graph of ``n_vertices`` and ``n_links``.

        Blocks are so large that a launch fills a GPU; large graphs have larger ones, as fewer launches are faster.
        ``iterations`` stays None if the run ends by its own convergence test.  With sparse rows an iteration is a sweep
        over all vertices.

        Raises :class:`InputError` if sparse rows are asked for together with a smaller size.
        """
        plain = self.phased and self.step == "split" and self.dtype == "float32" and self.products is None
        plain &= self.mini_batch_size is None and self.n_partners is None and not (self.sample_sweeps or self.average)
        rows = self.rows or ("sparse" if plain and self.n_communities >= FEWEST_SPARSE else "dense")
        if rows == "sparse":
            for name in ("mini_batch_size", "n_partners"):
                if (given := getattr(self, name)) is not None and given < n_vertices:
                    raise InputError(
                        f"rows='sparse' does not go with {name}={given}: a sweep over sparse rows takes all "
                        f"{n_vertices} vertices; leave one of them out"
                    )
        star = max(32, min(4096, n_vertices // 8))
        block = 32768 if n_vertices >= 8 * 32768 else max(4096, min(16384, n_vertices // 16))
        density = n_links / max(1.0, n_vertices * (n_vertices - 1) / 2)
        whole = dataclasses.replace(
            self,
            iterations=STAR_ITERATIONS if self.iterations is None and not self.block else self.iterations,
            start=self.start or ("auto" if self.block else "random"),
            delta=self.delta or (min(max(density / 100, 1e-9), 1e-3) if self.block else DELTA),
            rows=rows,
            mini_batch_size=self.mini_batch_size or (n_vertices if rows == "sparse" else block if self.block else star),
            n_partners=self.n_partners
            or (n_vertices if rows == "sparse" else 512 if self.block else 256 if self.shares else 32),
        )
        sweep = blocks_per_sweep(n_vertices, whole.size) if whole.block else 1
        every = 2 * sweep if whole.iterations is None else max(1, whole.iterations // 50)
        if whole.block and whole.draws_noise:
            every = min(every, 2 * sweep)  # draws of the posterior are kept at evaluations
        every = whole.evaluate_every or every
        return dataclasses.replace(whole, evaluate_every=every, burn_in_iterations=whole.burn_in_end)

    def held_out_share(self, n_links: int) -> float:
        """Share of ``n_links`` links to hold out for validation."""
        if self.validation is not None:
            return self.validation
        links = max(1, n_links)
        return min(0.05, max(0.01, 500 / links), MOST_HELD_OUT / links)

    def test_share(self, n_links: int) -> float:
        """Share of ``n_links`` links to hold out for test."""
        if self.test is not None:
            return self.test
        enough = self.validation != 0 and TEST_SHARE * n_links >= FEWEST_TEST_LINKS
        return min(TEST_SHARE, MOST_HELD_OUT / n_links) if enough else 0.0

    @property
    def sparse(self) -> bool:
        """Whether rows of sized options are sparse."""
        return self.rows == "sparse"

    @property
    def phased(self) -> bool:
        """Whether the run first optimises, without noise: block mini-batches unless noise is asked for."""
        return self.block and not self.noise

    @property
    def refines(self) -> bool:
        """Whether empty communities are refilled with parts of others."""
        return self.phased and self.refine

    @property
    def shares(self) -> bool:
        """Whether all vertices of a mini-batch use the same partners."""
        return self.block or self.partners in ("shared", "shared-uniform")

    @property
    def draws_noise(self) -> bool:
        """Whether the steps of the first phase add noise."""
        return not self.phased and self.noise is not False

    @property
    def samples(self) -> bool:
        """Whether the run draws from the posterior, from the start or after its optimum."""
        return self.draws_noise or self.sample_sweeps > 0

    @property
    def keeps_spread(self) -> bool:
        """Whether the run has the posterior's mean and standard deviation of pi: if it was asked to sample."""
        return self.samples and (self.average or self.noise is True or self.sample_sweeps > 0)

    @property
    def keeps_mean(self) -> bool:
        """Whether the run has the mean of pi over its samples."""
        return self.average or self.keeps_spread

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
        """``evaluate_every`` of sized options."""
        assert self.evaluate_every is not None
        return self.evaluate_every

    @property
    def burn_in_end(self) -> int | None:
        """First iteration whose state enters means, at least 1; None for a run of open length: after its optimum."""
        if self.burn_in_iterations is not None or self.iterations is None:
            return self.burn_in_iterations
        return max(1, math.ceil(self.burn_in * self.iterations))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Options:
        """The inverse of ``dataclasses.asdict``."""
        schedule = values.get("schedule")
        return cls(**(values | {"schedule": Schedule(**schedule) if schedule else None, "eta": tuple(values["eta"])}))
