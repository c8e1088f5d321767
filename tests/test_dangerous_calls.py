"""Nothing in the packages reads data as code: held on the syntax trees, so that no spelling slips by."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(path for package in ("gateway", "worker") for path in (ROOT / package).rglob("*.py"))
UNSAFE_MODULES = {
    "pickle",
    "_pickle",
    "cPickle",
    "cloudpickle",
    "dill",
    "joblib",
    "marshal",
    "shelve",
    "telnetlib",
}
CALLS = {"eval", "exec", "compile", "__import__"}
UNSAFE_ATTRIBUTES = {
    *("os.system", "os.popen", "yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load"),
    *(
        "tempfile.mktemp",
        "asyncio.create_subprocess_shell",
        "subprocess.getoutput",
        "subprocess.getstatusoutput",
    ),
    *("importlib.reload", "ssl._create_unverified_context", "runpy.run_path"),
}
FORBIDDEN_ARGUMENTS = {
    "shell": True,
    "trust_remote_code": True,
    "allow_pickle": True,
    "weights_only": False,
    "use_safetensors": False,
    "verify": False,
    "verify_ssl": False,
    "trust_env": True,
    "follow_redirects": True,
    "allow_redirects": True,
}
LOADING = {"from_pretrained", "SentenceTransformer", "CrossEncoder", "AutoModel"}


def dangers(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (
                f"import {name.name}" for name in node.names if name.name.partition(".")[0] in UNSAFE_MODULES
            )
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").partition(".")[0] in UNSAFE_MODULES:
                yield f"from {node.module}"
        elif isinstance(node, ast.Call):
            yield from _of_call(node)


def _of_call(call: ast.Call) -> Iterator[str]:
    name = ast.unparse(call.func)
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if name in CALLS or name in UNSAFE_ATTRIBUTES:
        yield name
    if name == "torch.load" and not _is(given.get("weights_only"), True):
        yield "torch.load without weights_only"
    if name.endswith("YAML") and _is(given.get("typ"), "unsafe"):
        yield "YAML of typ unsafe"
    last = name.rpartition(".")[2]
    if last in LOADING and name != "GenerationConfig.from_pretrained" and "trust_remote_code" not in given:
        yield f"{name} that does not say trust_remote_code=False"
    if last in LOADING and "Model" in name and "gguf_file" not in given and "use_safetensors" not in given:
        yield f"{name} that may read pickles"
    for argument, value in FORBIDDEN_ARGUMENTS.items():
        if argument in given and _is(given[argument], value):
            yield f"{name}({argument}={value})"


def _is(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value == value and type(node.value) is type(value)


def test_no_source_reads_data_as_code() -> None:
    assert len(SOURCES) > 300
    found = {str(path.relative_to(ROOT)): list(dangers(path.read_text())) for path in SOURCES}
    assert {path: what for path, what in found.items() if what} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from joblib import load",
        "import cloudpickle as c",
        "eval(x)",
        "exec(x, {})",
        "torch.load(f)",
        "torch.load(f, weights_only=False)",
        "yaml.load(f, Loader=yaml.Loader)",
        "yaml.unsafe_load(f)",
        "YAML(typ='unsafe')",
        "subprocess.run('ls', shell=True)",
        "os.system('ls')",
        "AutoTokenizer.from_pretrained(x)",
        "AutoModel.from_pretrained(x, trust_remote_code=True)",
        "AutoModel.from_pretrained(x, trust_remote_code=False)",
        "SentenceTransformer(x)",
        "numpy.load(f, allow_pickle=True)",
        "httpx.get(u, verify=False)",
    ],
)
def test_the_check_finds_each_of_them(source: str) -> None:
    assert list(dangers(source))
