"""A directory that is named as a model of plans and is none: one error, whether the model would be asked or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from verilocc_mlir.cli.main import run
from verilocc_mlir.errors import ExitCode, InputError
from verilocc_mlir.pipeline.learned import PlanModel, model_directory, model_version

KERNEL = """
define amdgpu_kernel void @k(ptr addrspace(1) %p, i32 %x) {
  store i32 %x, ptr addrspace(1) %p
  ret void
}
"""


@pytest.mark.parametrize("effort", ["-O=fast", "-O=learned"])
@pytest.mark.parametrize("place", ["", "file", "none", "words alone", "folders"])
def test_it_is_said(place: str, effort: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = tmp_path / place
    if place == "file":
        given.touch()
    if place == "words alone":
        given.mkdir()
        (given / "words.json").write_text("{}")
    if place == "folders":
        for name in ("words.json", "config.json", "model.safetensors", "critic.json"):
            (given / name).mkdir(parents=True)
    source, out = tmp_path / "k.ll", tmp_path / "k.hsaco"
    source.write_text(KERNEL)
    argv = ["compile", str(source), "-mcpu=gfx942", effort, f"--plan-model={given}", "-o", str(out)]
    assert run(argv) == ExitCode.BAD_INPUT
    said = capsys.readouterr().err
    assert f"{given}: no model of plans is there: it has no " in said
    assert said.count("error: ") == 1
    assert not out.exists()


def test_where_a_variable_names_it_it_is_said_where_a_model_may_be_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERILOCC_PLAN_MODEL", str(tmp_path))
    (tmp_path / "k.ll").write_text(KERNEL)
    argv = ["compile", str(tmp_path / "k.ll"), "-mcpu=gfx942", "-o", str(tmp_path / "k.hsaco")]
    assert run([*argv, "-O=learned"]) == ExitCode.BAD_INPUT
    assert "no model of plans is there" in capsys.readouterr().err
    assert run(argv) == ExitCode.PROVED


def test_of_a_model_only_files_are_read(tmp_path: Path) -> None:
    """A folder with a name of a file ended the digest in "Is a directory"."""
    given = tmp_path / "model"
    given.mkdir()
    for path in model_directory(None).rglob("*"):
        if path.is_file():
            target = given / path.relative_to(model_directory(None))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path)
    before = model_version(given)
    (given / "notes.json").mkdir()
    assert model_version(given) == before
    assert PlanModel.load(given).version == before
    with pytest.raises(InputError, match="no model of plans is there"):
        model_version(tmp_path)
