"""The store: whole entries or none, whatever happens to the files, the disk and the processes; and its keys."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
from importlib import metadata
from pathlib import Path

import pytest
from msgspec.structs import replace
from support import REPOSITORY, llc

from verilocc_mlir.errors import InputError
from verilocc_mlir.pipeline import key as key_module
from verilocc_mlir.pipeline.key import Keys, source_digest
from verilocc_mlir.pipeline.settings import Effort, Emit, ServerAccess, Settings
from verilocc_mlir.store import KEY_VARIABLE, Store, default_directory
from verilocc_mlir.toolchain import ToolchainChoice
from verilocc_mlir.toolchain.find import Toolchain, find_toolchain

KEY = "ab" + "0" * 62
OTHER = "cd" + "1" * 62
PARTS = {"result": b"\x7fELF\n\n\0", "report.json": b"{}\n", "empty": b""}


NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


def in_process(code: str, *arguments: str | Path) -> subprocess.Popen[str]:
    """Python code in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    store = Store(tmp_path / "new" / "store")
    assert store.get(KEY) is None
    assert not store.directory.exists()
    store.put(KEY, PARTS)
    assert store.get(KEY) == PARTS
    assert Store(store.directory).get(KEY) == PARTS
    assert store.get(OTHER) is None
    store.put(KEY, {"result": b"another"})
    assert store.get(KEY) == {"result": b"another"}
    assert files(tmp_path) == [store.path(KEY)]
    assert store.directory.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("key", ["", "../" * 20 + "etc", KEY.upper(), KEY + "0", KEY + "\n"])
def test_nothing_else_is_a_key(key: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no key"):
        Store(tmp_path).path(key)


def test_every_damaged_byte_and_every_cut_is_seen_and_mended(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(KEY, PARTS)
    path = store.path(KEY)
    whole = path.read_bytes()
    for position in range(len(whole)):
        for damaged in (
            whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :],
            whole[:position],
            whole[:position] + whole[position + 1 :],
        ):
            path.write_bytes(damaged)
            assert store.get(KEY) is None, position
    path.write_bytes(whole + b"\n")
    assert store.get(KEY) is None
    store.put(KEY, PARTS)
    assert store.get(KEY) == PARTS


def test_an_entry_under_another_name_is_none(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(KEY, PARTS)
    store.path(OTHER).parent.mkdir()
    store.path(KEY).rename(store.path(OTHER))
    assert store.get(OTHER) is None


def test_a_directory_in_its_place_is_none(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.path(KEY).mkdir(parents=True)
    assert store.get(KEY) is None
    with pytest.raises(OSError, match="directory"):
        store.put(KEY, PARTS)


def test_a_full_disk_leaves_the_old_entry_and_nothing_else(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(KEY, PARTS)
    child = in_process(
        """
        import resource, signal, sys
        from pathlib import Path
        from verilocc_mlir.store import Store
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            Store(Path(sys.argv[1])).put(sys.argv[2], {"result": bytes(100_000)})
        except OSError as error:
            print(error.strerror)
        """,
        tmp_path,
        KEY,
    )
    said, errors = child.communicate(timeout=60)
    assert said == "File too large\n", errors
    assert store.get(KEY) == PARTS
    assert files(tmp_path) == [store.path(KEY)]


def test_a_writer_killed_before_the_rename_leaves_the_old_entry(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(KEY, PARTS)
    child = in_process(
        """
        import os, signal, sys
        from pathlib import Path
        from verilocc_mlir.store import Store
        os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        Store(Path(sys.argv[1])).put(sys.argv[2], {"result": b"new"})
        """,
        tmp_path,
        KEY,
    )
    child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL
    assert store.get(KEY) == PARTS
    left = [path for path in files(tmp_path) if path != store.path(KEY)]
    assert all(path.name.startswith(".") for path in left)
    store.put(KEY, {"result": b"new"})
    assert store.get(KEY) == {"result": b"new"}


def test_processes_may_write_and_read_the_same_entry_at_once(tmp_path: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        from verilocc_mlir.store import Store
        store, mine = Store(Path(sys.argv[1])), int(sys.argv[3])
        for _ in range(40):
            store.put(sys.argv[2], {"result": bytes([mine]) * (10_000 + mine)})
            found = store.get(sys.argv[2])["result"]
            assert found == bytes([found[0]]) * (10_000 + found[0])
        """
    children = [in_process(code, tmp_path, KEY, str(number)) for number in range(3)]
    for child in children:
        _, errors = child.communicate(timeout=60)
        assert child.returncode == 0, errors
    assert files(tmp_path) == [Store(tmp_path).path(KEY)]


def test_only_who_has_the_key_makes_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither an entry of the older form nor one of another user's key is ours."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "theirs"))
    Store(tmp_path / "store").put(KEY, PARTS)
    path = Store(tmp_path / "store").path(KEY)
    body = path.read_bytes().partition(b"\n")[2]
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "ours"))
    older = b"verilocc-store-1 " + hashlib.sha256(body).hexdigest().encode() + b"\n" + body
    for forged in (path.read_bytes(), older, older.replace(b"store-1", b"store-2")):
        path.write_bytes(forged)
        caplog.clear()
        assert Store(tmp_path / "store").get(KEY) is None
        assert caplog.messages == [f"what is kept in {path} is not used: it was damaged, or made with another key"]
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "theirs"))
    Store(tmp_path / "store").put(KEY, PARTS)
    assert Store(tmp_path / "store").get(KEY) == PARTS


@pytest.mark.parametrize("kind", ["pipe", "link", "device"])
def test_what_is_no_file_is_none_and_holds_nobody(kind: str, tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(KEY, PARTS)
    path = store.path(KEY)
    whole = path.rename(tmp_path / "elsewhere")
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(whole if kind == "link" else "/dev/zero")
    child = in_process(
        """
        import sys
        from pathlib import Path
        from verilocc_mlir.store import Store
        print(Store(Path(sys.argv[1])).get(sys.argv[2]))
        """,
        tmp_path,
        KEY,
    )
    said, errors = child.communicate(timeout=60)
    assert said == "None\n", errors
    assert errors.startswith(f"what is kept in {path} is not used: ")
    store.put(KEY, {"result": b"again"})
    assert store.get(KEY) == {"result": b"again"}


def test_a_directory_where_others_may_write_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(tmp_path / "store")
    store.put(KEY, PARTS)
    for mode in (0o770, 0o707, 0o1777):
        store.directory.chmod(mode)
        with pytest.raises(InputError, match="others may write into the directory") as refused:
            store.check()
        assert "chmod go-w" in str(refused.value)
        assert store.get(KEY) is None
        with pytest.raises(OSError, match="others may write"):
            store.put(OTHER, PARTS)
    assert len(caplog.messages) == 3
    store.directory.chmod(0o755)
    store.check()
    assert store.get(KEY) == PARTS
    assert store.get(OTHER) is None


@as_root
def test_another_users_directory_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.put(KEY, PARTS)
    os.chown(store.directory, NOBODY, NOBODY)
    with pytest.raises(InputError, match=f"another user .uid {NOBODY}"):
        store.check()
    assert store.get(KEY) is None
    with pytest.raises(PermissionError):
        store.put(KEY, PARTS)


def test_the_key_is_for_its_user_alone_and_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    code = """
        import sys
        from pathlib import Path
        from verilocc_mlir.store import Store
        sys.stdin.read()
        Store(Path(sys.argv[1])).put(sys.argv[2], {"result": b""})
        """
    keys = [f"{number:064x}" for number in range(4)]
    children = [in_process(code, tmp_path / "store", key) for key in keys]
    for child in children:
        assert child.stdin is not None
        child.stdin.close()
    for child in children:
        assert child.wait(60) == 0
    assert [Store(tmp_path / "store").get(key) for key in keys] == [{"result": b""}] * 4
    (path,) = files(tmp_path / "config")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert len(path.read_text()) == 65


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [("a" * 64, 0o644, "others may read"), ("a" * 64, 0o660, "others may read"), ("short", 0o600, "32 bytes at least")],
)
def test_a_key_that_is_none_is_refused(
    text: str, mode: int, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text(text)
    (tmp_path / "key").chmod(mode)
    monkeypatch.setenv(KEY_VARIABLE, str(tmp_path / "key"))
    (tmp_path / "store").mkdir()
    store = Store(tmp_path / "store")
    with pytest.raises(InputError, match=why):
        store.check()
    with pytest.raises(OSError, match=why):
        store.put(KEY, PARTS)
    monkeypatch.setenv(KEY_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(InputError, match="cannot be read"):
        store.check()


@as_root
def test_users_with_one_key_share_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another user made with the key is taken; what one made without it is not."""
    code = """
        import os, sys
        from pathlib import Path
        from verilocc_mlir.store import Store
        os.setgroups([])
        os.setgid(int(sys.argv[3]))
        os.setuid(int(sys.argv[3]))
        Store(Path(sys.argv[1])).put(sys.argv[2], {"result": b"theirs"})
        """
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        store = Store(directory / "store")
        store.directory.mkdir()
        store.directory.chmod(0o777)
        for entry, key in ((KEY, directory / "ours"), (OTHER, directory / "guessed")):
            key.write_text(key.name * 16)
            key.chmod(0o640)
            os.chown(key, 0, NOBODY)
            monkeypatch.setenv(KEY_VARIABLE, str(key))
            _, errors = in_process(code, store.directory, entry, str(NOBODY)).communicate(timeout=60)
            assert store.path(entry).stat().st_uid == NOBODY, errors
        monkeypatch.setenv(KEY_VARIABLE, str(directory / "ours"))
        assert store.get(KEY) == {"result": b"theirs"}
        assert store.get(OTHER) is None
        monkeypatch.delenv(KEY_VARIABLE)
        assert store.get(KEY) is None


def test_where_the_store_is() -> None:
    assert default_directory({"XDG_CACHE_HOME": "/somewhere"}) == Path("/somewhere/verilocc")
    assert default_directory({"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache" / "verilocc"
    assert default_directory({}) == Path.home() / ".cache" / "verilocc"


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    llc()
    return find_toolchain()


CHANGED = Settings(
    cpu="gfx942",
    features="+xnack",
    triple="amdgcn-amd-amdhsa",
    opt_level=2,
    allocator="llvm",
    allocator_seconds=1.0,
    model_samples=3,
    effort=Effort.BEST,
    plan="packed",
    plans=2,
    plan_model=Path("plans"),
    emit=Emit.OBJ,
    also=(Emit.MIR,),
    spill=False,
    order=False,
    fallback=False,
    verify=False,
    seconds=1.0,
    solver_seconds=1.0,
    tool_seconds=1.0,
    llc_options=("-fp-contract=fast",),
    toolchain=ToolchainChoice.TRITON,
    llvm=Path("/nowhere"),
    server="127.0.0.1:1",
    server_allocator="another",
    server_required=True,
    access=ServerAccess(
        Path("ca.pem"), Path("cert.pem"), Path("key.pem"), Path("token.txt"), insecure=True, seconds=1.0
    ),
)


@pytest.mark.usefixtures("machine_verifier")
@pytest.mark.parametrize("name", Settings.__struct_fields__)
def test_every_setting_that_can_change_a_result_changes_its_key(name: str, toolchain: Toolchain) -> None:
    assert getattr(CHANGED, name) != getattr(Settings(), name)
    changed = replace(Settings(), **{name: getattr(CHANGED, name)})
    same = Keys(changed, toolchain).of("0" * 64) == Keys(Settings(), toolchain).of("0" * 64)
    assert same == (name in ("tool_seconds", "toolchain", "llvm", "access", "server_required"))


def test_keys_know_the_input_and_the_versions(toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    def key() -> str:
        return Keys(Settings(), toolchain).of("0" * 64)

    first = key()
    assert re.fullmatch("[0-9a-f]{64}", first)
    assert first == key()
    seen = {first, Keys(Settings(), toolchain).of("1" * 64)}
    seen.add(Keys(Settings(), replace(toolchain, version_text="LLVM version 23.0.0")).of("0" * 64))
    seen.add(Keys(Settings(), replace(toolchain, llc=Path(sys.executable))).of("0" * 64))
    for change in (
        lambda m: m.setattr(key_module, "source_digest", lambda: "edited"),
        lambda m: m.setattr(key_module.version, "__version__", "9.9.9"),
        lambda m: m.setattr(metadata, "version", lambda _: "9.9.9"),
    ):
        with monkeypatch.context() as patch:
            change(patch)
            seen.add(key())
    seen.add(Keys(Settings(), toolchain, "deterministic 1").of("0" * 64))
    assert len(seen) == 8
    assert key() == first


def test_the_sources_of_both_packages_are_in_the_key(tmp_path: Path) -> None:
    code = "from verilocc_mlir.pipeline.key import source_digest; print(source_digest())"

    def digest() -> str:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    for package in ("verilocc_mlir", "smt_verifier"):
        subprocess.run(["cp", "-r", str(REPOSITORY / package), str(tmp_path)], check=True)
    assert digest() == source_digest()
    seen = {digest()}
    for module in ("smt_verifier/audit/core/check.py", "verilocc_mlir/target/targets.py"):
        with (tmp_path / module).open("a") as stream:
            stream.write("# edited\n")
        seen.add(digest())
    assert len(seen) == 3


def test_settings_survive_the_way_to_another_process() -> None:
    for settings in (Settings(), CHANGED):
        assert Settings.from_data(settings.to_data()) == settings
    with pytest.raises(TypeError):
        Settings.from_data({"no_such": 1})
    with pytest.raises(ValueError, match="exe"):
        Settings.from_data({"emit": "exe"})


def test_wrong_settings_have_no_keys(toolchain: Toolchain) -> None:
    for settings in (Settings(allocator="oracle"), Settings(cpu="gfx1"), Settings(triple="x86_64")):
        with pytest.raises(InputError):
            Keys(settings, toolchain)
