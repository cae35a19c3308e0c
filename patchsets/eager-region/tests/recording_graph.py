"""A stand-in for `torch.cuda.CUDAGraph` that records operators on the CPU and runs them again.

Between `capture_begin` and `capture_end` every operator that PyTorch dispatches is run and noted,
with its arguments. `replay` runs them in order on the same tensors and puts the results where they
were at capture. As with a real graph, Python code in between is not run again, and what was not
called at capture is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, result))
        return result


class RecordingGraph:
    """Has the three methods of `torch.cuda.CUDAGraph` that breakable capture calls."""

    capturing: ClassVar[RecordingGraph | None] = None

    def __init__(self) -> None:
        self._recorder = _Recorder()

    def capture_begin(self, pool: Any = None) -> None:
        assert RecordingGraph.capturing is None
        RecordingGraph.capturing = self
        self._recorder.__enter__()

    def capture_end(self) -> None:
        assert RecordingGraph.capturing is self
        self._recorder.__exit__(None, None, None)
        RecordingGraph.capturing = None

    def replay(self) -> None:
        assert RecordingGraph.capturing is None
        for func, args, kwargs, before in self._recorder.calls:
            again = func(*args, **kwargs)
            for old, new in zip(_tensors(before), _tensors(again), strict=True):
                # A view, or what was written in place, is there already.
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)


def _tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, (tuple, list)):
        return [tensor for part in result for tensor in _tensors(part)]
    return []


@contextmanager
def recording_graphs() -> Iterator[None]:
    """Breakable capture works on the CPU inside."""
    from vllm.compilation import breakable_cudagraph

    with (
        mock.patch("torch.cuda.CUDAGraph", RecordingGraph),
        mock.patch(
            "torch.cuda.is_current_stream_capturing",
            lambda: RecordingGraph.capturing is not None,
        ),
        # The op is not built. A detached tensor has the same memory.
        mock.patch.object(breakable_cudagraph, "weak_ref_tensor", torch.Tensor.detach),
    ):
        yield
