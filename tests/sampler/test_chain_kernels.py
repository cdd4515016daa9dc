"""How the kernels of a chain are compiled, on a device that records what it is given."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mmsbgen.backends.base import Program
from mmsbgen.backends.fake import FakeDevice
from mmsbgen.families.mmsb import MMSB
from mmsbgen.kernels.runtime import Runtime
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.options.options import Options
from tests.devices import H200


class Recording(FakeDevice):
    """Compiles side by side, and keeps the sources."""

    side_by_side = True

    def __init__(self) -> None:
        super().__init__(H200)
        self.ahead: set[str] = set()
        self.compiled: list[tuple[str, str]] = []

    def compile_ahead(self, sources: Sequence[str], options: Sequence[str] = ()) -> None:
        self.ahead |= set(sources)

    def compile(self, source: str, kernel_names: Sequence[str], options: Sequence[str] = ()) -> Program:
        self.compiled.append((kernel_names[0], source))
        return super().compile(source, kernel_names, options)


@pytest.mark.parametrize("mini_batch", ["random-node", "block"])
def test_kernels_that_were_compiled_ahead_are_used(middling, mini_batch):
    device = Recording()
    options = Options(n_communities=5, mini_batch=mini_batch, mini_batch_size=16, average=True)
    Sampler(middling, options, Runtime(device, MMSB)).close()
    assert len(device.ahead) >= 10
    assert device.ahead <= {text for _, text in device.compiled}
    assert {name for name, text in device.compiled if text not in device.ahead} <= {"gather_rows"}, "its other modes"
