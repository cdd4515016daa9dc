"""The estimator :class:`MMSB`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from mmsbgen.base.declared_options import Parameters
from mmsbgen.base.errors import InputError, ParameterError, warn_user
from mmsbgen.detection.detect import perform
from mmsbgen.detection.request import Request
from mmsbgen.estimator import modelfile
from mmsbgen.estimator.fitted import Fitted, FittedChain
from mmsbgen.graph import Graph, ReadingOptions, as_graph, read_graph
from mmsbgen.sampler.options.options import Options, blocks_per_sweep
from mmsbgen.sampler.options.schedule import Schedule
from mmsbgen.sampler.saved.result_options import ResultOptions
from mmsbgen.sampler.saved.saved_chain import SavedChain

#: Options of the chain except K, iterations and seed; they must not change between ``fit`` and ``partial_fit``.
OPTIONS = tuple(field.name for field in fields(Options) if field.name not in ("n_communities", "iterations", "seed"))
#: Sweeps that ``partial_fit`` adds to a run that ended by its own convergence test.
MORE_SWEEPS = 50


class InterruptedFit(UserWarning):
    """A fit was stopped by Ctrl-C or SIGTERM; its partial result is available and ``partial_fit`` resumes it."""


@dataclass(eq=False, repr=False)
class MMSB(Parameters, Fitted):
    """Overlapping communities by the assortative mixed-membership stochastic blockmodel.

    By default ``fit`` optimises: memberships are one state near a mode of the posterior.  With ``sample_sweeps`` the
    chain then samples, and with ``average`` memberships are the mean of the samples.

    Follows scikit-learn's conventions without requiring scikit-learn: the constructor only stores its arguments, and
    fitted attributes end in an underscore.  The input is a graph rather than a matrix of features.

    Args:
        n_communities: K of the model, or ``"auto"`` to choose it by held-out pairs, which takes several runs.
        random_state: an integer, None for 0, or a NumPy generator that draws the seed.  The same seed gives the same
            bits on the same device with the same configurations, for any order of links and vertices.
        rule: how memberships become communities: ``evidence``, ``share``, ``threshold``, ``link`` or ``top``.
        threshold: the rule's threshold; each rule has its own default.
        top: number of largest entries of every row of pi that results hold exactly.
        sparse_output: whether ``memberships_`` is a ``scipy.sparse.csr_array`` rather than a NumPy array.
        keep_chain: whether to store the chain in a temporary file of about the size of its state: N K numbers, three
            times as many where the run was asked to sample.
            ``partial_fit`` needs it; other rules and link probabilities are exact only with it.
        device: a device for :func:`mmsbgen.backends.open_device`; the best one by default.
        database: path or URL of the tuning database; the user's own by default.
        verbose: whether ``fit`` prints messages to standard error.
        iterations: length of the chain; by default block mini-batches run until the held-out log-likelihood has
            settled, and the others 1000 iterations.
        mini_batch: ``block``, or the published stars. This and all following parameters are fields of
            :class:`mmsbgen.sampler.options.options.Options`, which documents them.

    Attributes:
        ids_: ids of the vertices ``[N]`` in the input, in the order of the rows of ``memberships_``.
        communities_: lists of ids, largest community first.
        memberships_: shares ``[N, C]`` of every vertex in its communities; rows sum to 1, or 0 for a vertex in none.
        labels_: the community of every vertex's largest share ``[N]``; -1 for a vertex in none.
        strengths_: the strengths beta ``[C]`` of the model, which are no calibrated probabilities.
        n_communities_: the number of communities found, C.
        n_vertices_in_, n_links_in_: N and E of the graph.
        n_iter_: number of iterations.
        seed_: the seed.
        interrupted_: whether the run was stopped before its end.
        trace_: one mapping per evaluation on held-out pairs.
        record_: the run record: options, device, versions, timings.
        verdict_: whether communities were found (:class:`mmsbgen.sampler.diagnostics.verdict.Verdict`).
        detection_: the result as :class:`mmsbgen.Detection`.
    """

    n_communities: int | Literal["auto"] = "auto"
    _: KW_ONLY
    random_state: int | np.random.Generator | np.random.RandomState | None = None
    rule: str = ResultOptions.rule
    threshold: float | None = None
    top: int = ResultOptions.top
    sparse_output: bool = False
    keep_chain: bool = True
    device: str | None = None
    database: str | os.PathLike[str] | None = None
    verbose: bool = False
    iterations: int | None = None
    mini_batch: str = "block"
    mini_batch_size: int | None = None
    n_partners: int | None = None
    partners: str = "stratified"
    products: str | None = None
    step: str = "split"
    noise: bool | None = None
    sample_sweeps: int = 0
    refine: bool = True
    start: str | None = None
    nonlink_weight: str = "exact"
    alpha: float | None = None
    eta: tuple[float, float] = (1.0, 1.0)
    delta: float | None = None
    schedule: Schedule | tuple[float, float, float] | None = None
    theta_scale: float | None = None
    initial_row_sum: float | None = 1.0
    evaluate_every: int | None = None
    burn_in: float = 0.5
    burn_in_iterations: int | None = None
    average: bool = False
    dtype: str = "float32"
    storage: str = "float32"
    rows: str | None = None
    entries: int = 16
    validation: float | None = None
    test: float | None = None
    chains: int = 1

    # Fitting -------------------------------------------------------------------------------------------------

    def fit(
        self,
        graph: Any,
        y: Any = None,
        *,
        columns: Sequence[Any] | None = None,
        weights: str | None = None,
        vertices: str | os.PathLike[str] | Iterable[Any] | None = None,
        format: str = "auto",
    ) -> Self:
        """Fit the model to a graph.

        ``graph`` is any input of :func:`mmsbgen.graph.as_graph`, which has the other options too: the path of a file,
        an array ``[E, 2]`` or list of pairs, a scipy.sparse matrix, a networkx or igraph graph, or an edge table of
        pandas, polars or pyarrow.

        For searches and cross-validations of scikit-learn, ``graph`` may also be pairs ``[P, 2]`` with labels ``y``
        ``[P]``, 1 for links and 0 for non-links; all ids become vertices.

        A first Ctrl-C stops the fit with a partial result (:class:`InterruptedFit`).

        Raises:
            InputError: for an invalid graph or parameter; an earlier fit is left unchanged.
            DeviceMemoryError: if the state does not fit; raised before anything is allocated.
        """
        params = self._plain_params()
        given = {name: params[name] for name in ("n_communities", *OPTIONS, "iterations")}
        seed = _seed(self.random_state)
        if y is not None:
            graph, named = _links_of(graph, y)
            if isinstance(vertices, str | os.PathLike):
                raise InputError(f"vertices={vertices!r}: with y, give ids instead of a file")
            vertices = [*named, *(() if vertices is None else vertices)]
        source = read_graph(graph, ReadingOptions(format, columns, weights, vertices))
        self._run(source, self._request(given | {"seed": seed}), seed, params)
        return self

    def partial_fit(self, graph: Any = None, y: None = None, *, iterations: int | None = None, **reading: Any) -> Self:
        """Continue the fitted chain; without an earlier fit the same as :meth:`fit`.

        A chain that samples goes on sampling, and its means go on.  One that optimises goes on optimising.

        If ``refine`` is off and ``start`` is not ``auto``, the chain equals, bit for bit, that of one run with the
        total number of iterations given.  Otherwise the length decides when empty communities are refilled and how
        long starts are tried.  The defaults of ``evaluate_every`` and ``burn_in_iterations`` depend on the length too;
        they affect metrics, averages, and the steps of blocks with noise, which are small after the burn-in.

        Args:
            graph: the fitted graph, or None.
            y: ignored.
            iterations: additional iterations. Default: the rest of an interrupted run; else the parameter
                ``iterations``; if that is None, 50 sweeps, or 50 iterations of stars.
            **reading: options of :meth:`fit`, such as ``columns``.

        Raises:
            InputError: for another graph, for changed parameters of the model, and if the chain was not stored.
        """
        if not self.__sklearn_is_fitted__():
            if iterations is None:
                return self.fit(graph, **reading)
            longer = type(self)(**(self.get_params() | {"iterations": iterations}))
            self._take(longer.fit(graph, **reading)._fit)
            return self
        fit = self._fit
        if graph is not None and as_graph(graph, **reading).digest != fit.graph.digest:
            raise InputError(
                f"partial_fit goes on with the graph that was fitted, {fit.graph.name}; for another one call fit"
            )
        params = self._plain_params()
        for name in ("n_communities", "random_state", *OPTIONS):
            if params[name] != fit.params[name]:
                raise ParameterError(
                    f"{name} was {fit.params[name]!r} when the model was fitted and is {params[name]!r} now: "
                    "partial_fit goes on with the same model; set it back, or call fit"
                )
        if fit.chain is None:
            raise InputError("the chain was not kept, so that partial_fit cannot go on: fit with keep_chain=True")
        if params["chains"] > 1:
            raise InputError(f"partial_fit goes on with one chain, and chains={params['chains']}: call fit")
        options = {} if (more := self._more(iterations)) is None else {"iterations": more}
        request = replace(self._request(options), resume=fit.chain.path)
        self._run(fit.graph, request, fit.seed, fit.params)
        return self

    def fit_predict(self, graph: Any, y: Any = None, **reading: Any) -> npt.NDArray[np.int64]:
        """Fit, and return ``labels_``."""
        return self.fit(graph, y, **reading).labels_

    def _more(self, iterations: int | None) -> int | None:
        """Total iterations of the continued run; None for the length it had."""
        if iterations is not None and not (isinstance(iterations, int | np.integer) and iterations >= 0):
            raise InputError(f"iterations={iterations!r}: it is how many more are made, 0 or more")
        record = self._fit.found.record
        done, options = int(record["iterations"]), record["options"]
        if iterations is not None:
            return done + int(iterations)
        if self._fit.found.interrupted:
            return None
        if self.iterations is not None:
            return done + int(self.iterations)
        block = options["mini_batch"] == "block"
        return done + MORE_SWEEPS * (blocks_per_sweep(self.n_vertices_in_, options["mini_batch_size"]) if block else 1)

    def _request(self, options: Mapping[str, Any]) -> Request:
        say: Callable[[str], None] = _tell if self.verbose else lambda text: None
        return Request(
            dict(options),
            device=self.device,
            database=None if self.database is None else os.fspath(self.database),
            rule=self.rule,
            threshold=self.threshold,
            top=self.top,
            # The file is deleted with this process, so periodic checkpoints would be useless.
            checkpoint_seconds=float("inf"),
            on_message=say,
            on_detail=say,
        )

    def _run(self, graph: Graph, request: Request, seed: int, params: Mapping[str, Any]) -> None:
        chain = SavedChain.new() if self.keep_chain else None
        found = perform(graph, replace(request, state=None if chain is None else chain.path))
        kept = chain if chain is not None and chain.written else None
        self._take(FittedChain(replace(found, checkpoint=None), graph, seed, dict(params), kept))
        if found.interrupted:
            after = f"the fit was interrupted after iteration {self.n_iter_}"
            warn_user(f"{after}; partial_fit() goes on" if kept and self.chains == 1 else after, InterruptedFit)

    def _plain_params(self) -> dict[str, Any]:
        """The parameters with NumPy scalars as Python numbers, and the schedule as a :class:`Schedule`."""
        params = {
            name: value.item() if isinstance(value, np.generic) else value for name, value in self.get_params().items()
        }
        schedule = params["schedule"]
        if schedule is not None and not isinstance(schedule, Schedule):
            try:
                params["schedule"] = Schedule(*schedule)
            except TypeError:
                raise InputError(
                    f"schedule={schedule!r}: give three numbers eps_0, t_0, kappa of eps = eps_0 (1 + t/t_0)^-kappa"
                ) from None
        try:
            params["eta"] = tuple(float(value) for value in params["eta"])
        except (TypeError, ValueError):
            raise InputError(
                f"eta={params['eta']!r}: it must be two positive numbers, for non-links and for links"
            ) from None
        return params

    # A file --------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, chain: bool = True) -> Path:
        """Write the fitted model into one file, without pickle; returns its path.

        ``chain``: whether to include the chain, for :meth:`partial_fit` and exact rules; it is most of the file.
        """
        fit = self._fitted("save")
        modelfile.write(Path(path), self._plain_params(), fit, chain)
        return Path(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model written by :meth:`save`.

        Parameters newer than the file get their defaults.  Raises InputError for any other file, and for one with
        parameters unknown to this version.
        """
        params, fit = modelfile.read(Path(path), cls._defaults())
        made = cls(**params)
        made._take(fit)
        return made

    # scikit-learn --------------------------------------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            estimator_type="clusterer",
            target_tags=TargetTags(required=False),
            input_tags=InputTags(sparse=True, string=True, categorical=True),
            no_validation=True,
        )


def _seed(random_state: Any) -> int:
    if random_state is None:
        return 0
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        return int(random_state)
    raise InputError(f"random_state={random_state!r}: give an integer, None, or a generator of NumPy")


def _tell(text: str) -> None:
    print(text, file=sys.stderr)


def _links_of(pairs: Any, labels: Any) -> tuple[list[tuple[Any, Any]], list[Any]]:
    """The links among ``pairs`` ``[P, 2]`` of ids by ``labels`` ``[P]``, 1 or 0, and the ids of all pairs.

    Raises:
        InputError: for other pairs or labels, and if no pair is a link.
    """
    table = pairs.to_numpy() if hasattr(pairs, "to_numpy") else pairs
    rows = table.tolist() if isinstance(table, np.ndarray) else table
    if not isinstance(rows, list | tuple) or not all(isinstance(row, list | tuple) and len(row) == 2 for row in rows):
        raise InputError(
            f"y says which pairs are links, and {type(pairs).__name__} is no array (P, 2) of ids: give one, or no y"
        )
    told = np.asarray(labels)
    if told.shape != (len(rows),) or not np.isin(told, (0, 1)).all():
        raise InputError(f"y of shape {told.shape}: give {len(rows)} values, 1 for a link and 0 for a non-link")
    links = [(row[0], row[1]) for row, is_link in zip(rows, told.tolist(), strict=True) if is_link]
    if not links:
        raise InputError(f"none of the {len(rows)} pairs is a link: the fit needs some")
    return links, [name for row in rows for name in row]
