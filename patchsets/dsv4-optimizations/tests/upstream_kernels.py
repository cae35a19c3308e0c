"""Single functions of upstream's files, loaded without what the files import."""

from __future__ import annotations

import ast
import importlib.util
import sys
import tempfile
from pathlib import Path
from types import ModuleType

FP8_UTILS = "vllm/model_executor/layers/quantization/utils/fp8_utils.py"


def extract(tree: Path, path: str, *names: str) -> ModuleType:
    """A module of only these top-level functions; Triton needs their source in a file."""
    source = (tree / path).read_text()
    found = {
        node.name: "\n".join(
            [f"@{ast.unparse(decorator)}" for decorator in node.decorator_list]
            + [ast.get_source_segment(source, node) or ""]
        )
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name in names
    }
    missing = set(names) - set(found)
    if missing:
        raise LookupError(f"{path} has no {', '.join(sorted(missing))}")
    folder = Path(tempfile.mkdtemp(prefix="upstream-kernels-"))
    file = folder / f"upstream_{Path(path).stem}.py"
    header = "import triton\nimport triton.language as tl\n\n"
    file.write_text(header + "\n\n".join(found[name] for name in names) + "\n")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module
