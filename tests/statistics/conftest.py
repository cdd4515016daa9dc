"""The statistical tests, on OpenCL and, where there is one, on a CUDA device.

What a sampler of this model can get wrong without looking wrong, and where it is tested; R marks tests of the
NumPy reference, D those of kernels on devices:

1.  Gradients are derivatives of log Z, one-hot rows and strengths near 0 and 1 included.
    R families/test_reference: test_drift_is_the_derivative_of_log_z, test_theta_counts_give_the_derivative_of_log_z
    D test_gradients: the same two on the device
2.  Responsibilities minus memberships sum to nothing, and the columns of theta move opposite ways.
    R families/test_reference: test_responsibilities_minus_memberships_sum_to_nothing,
    test_both_columns_of_theta_move_opposite_ways
    D test_gradients: test_the_data_leave_row_sums_to_the_prior, test_the_data_leave_sums_of_theta_to_the_prior
3.  p(link) + p(non-link) = 1.
    R families/test_reference: test_probabilities_of_link_and_non_link_sum_to_one
    D test_gradients: the same on the device
4.  The expected weight of every pair is 1: both strata, partners, blocks, isolated vertices, held-out pairs.
    R families/test_partners (partners by enumeration), sampler/test_minibatch (stars whose non-links are all taken;
    means over draws), test_weights (stars with a part of the non-links, pairs and blocks by enumeration)
    D test_weights: test_partners_drawn_on_the_device, test_stars_drawn_on_the_device,
    test_shared_partners_give_the_whole_gradient, test_partners_shared_by_a_star_give_the_whole_gradient
5.  Links are found from both directions; what is drawn as a non-link is neither a link nor held out.
    R graph/test_edgeset: test_documented_definition
    D test_weights: test_every_training_link_is_found_from_both_ends, test_no_non_link_is_a_link_or_held_out
6.  The laws of chains: prior alone, conjugate toys, and whole models of up to eight vertices.
    R families/test_reference: test_split_step_keeps_the_prior, test_reflected_step_flattens_the_prior;
    test_prior: test_the_reference_finds_the_prior; test_conjugate: test_memberships_by_the_reference;
    test_posteriors: test_blocks_sample_the_posterior, test_stars_sample_the_posterior
    D test_draws (one transition against its exact law), test_prior, test_conjugate, families/test_draw_laws,
    test_posteriors: test_strengths_of_communities_of_any_size, test_runs_of_blocks_that_sample,
    sampler/test_statistics: test_without_data_the_split_step_keeps_the_prior
    What chains cost in accuracy at larger counts and steps: docs/reports/statistics.md
7.  Without noise one step is the reference's to 1e-5, whatever the sizes.
    D test_one_step: test_rows_without_noise, test_blocks_without_noise, test_strengths_without_noise; with derived
    tolerances families/test_device (a covering sample), families/test_device_edges, sampler/test_iteration
8.  Noise is not correlated across coordinates, vertices and iterations.
    R families/test_random: test_no_correlation_across_coordinates_and_vertices and the next two
    D test_draws: test_noise_is_not_correlated
9.  A planted model is found.
    D test_planted; sampler/test_statistics: test_planted_communities_are_found
10. Random words do not depend on the launch, and any two configurations agree on a step.
    D test_one_step: test_words_do_not_depend_on_the_launch, test_configurations_agree_on_a_step; families/
    test_device_edges: test_same_configuration_same_bits; families/test_device: test_every_pair_of_values_that_kernels_
    allow; sampler/test_iteration: test_configurations_agree_after_a_step
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mmsbgen.backends import Device, open_device
from mmsbgen.base.errors import InputError
from tests.conftest import open_or_skip

DEVICES = [
    pytest.param("pocl", marks=pytest.mark.opencl),
    pytest.param("intel", marks=pytest.mark.opencl),
    pytest.param("cuda:0", marks=pytest.mark.cuda),
]


def opened(name: str) -> Device:
    """A device; a CUDA device that is not there skips the test."""
    if not name.startswith("cuda"):
        return open_or_skip(name)
    try:
        return open_device(name)
    except InputError as error:
        pytest.skip(f"no CUDA device here: {error}")


@pytest.fixture(scope="session", params=[DEVICES[0], DEVICES[-1]])
def chain_device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """PoCL, then the first CUDA device, for laws of long chains; one of test_prior runs on Intel's runtime too."""
    with opened(request.param) as found:
        yield found


@pytest.fixture(scope="session", params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """Each OpenCL platform for processors in turn, then the first CUDA device."""
    with opened(request.param) as found:
        yield found
