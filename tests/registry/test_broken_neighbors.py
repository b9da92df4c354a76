"""A damaged or hostile distribution is listed with a one-line cause, or works, in little time. It disturbs no other one."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from rlsdk.errors import PluginError, RlsdkError
from rlsdk.registry import extension, extensions, find, load, preset, preset_names, presets
from rlsdk.registry.packaged_files import capabilities
from rlsdk.runs.runner import named_sinks, write_reports
from rlsdk.runtime.files import PlainFileError, parse_toml
from tests.effort import limited
from tests.plugin_site import ENTRY, METADATA, Site
from tests.throwaway import GOOD, MANIFEST

ESCAPE = "\x1b[2J"


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ("a = " + "[" * 4000, "nested too deeply"),
        (".".join("a" * 2000) + " = 1", "nested too deeply"),
        ("[" + ".".join("a" * 2000) + "]", "nested too deeply"),
        ('x = { a = """b"""", ' + ".".join("c" * 2000) + " = 1 }", "nested too deeply"),
        ("[" + "].a.[".join("a" * 20) + "]", "not valid TOML"),
        (".".join("a" * 20_000) + " = 1", "larger than 4 kB"),
        ('"\\' * 2000, "not valid TOML"),
        ("a = " + "1" * 4090, "unknown fields"),
        ("a = 0x" + "f" * 4000, "unknown fields"),
        (b"\xff\xfe id", "not UTF-8"),
        ("#" * 100_000, "larger than"),
        ("", "lacks"),
        (MANIFEST.format(id="bad", sdk=">=0.1") + 'serializers = [".rlsdk"]', "the SDK's own"),
        (MANIFEST.format(id="bad", sdk=">=0.1").replace("for tests", ESCAPE), "not valid TOML"),
        (MANIFEST.format(id="bad", sdk=">=0.1").replace("for tests", "\\u001b[2J"), "control characters"),
        (MANIFEST.format(id="bad", sdk=ESCAPE.replace("\x1b", "\\u001b")), "control characters"),
        (MANIFEST.format(id="bad", sdk="latest"), "not a version range"),
        (MANIFEST.format(id="good", sdk=">=0.1"), "make them equal"),
    ],
)
def test_manifests(site: Site, manifest: str | bytes, words: str) -> None:
    site.add("bad", manifest=manifest)
    bad = site.check()
    assert bad is not None
    assert words in (bad.problem or "")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("[rlsdk.plugins]\nbad = ???:\n", "is not NAME = MODULE"),
        ("[rlsdk.plugins]\nbad\n", "is not NAME = MODULE"),
        ("[rlsdk.plugins]\nbad =\n", "is not NAME = MODULE"),
        ("[rlsdk.plugins]\n= acme_bad.plugin\n", "is not NAME = MODULE"),
        (f"[rlsdk.plugins]\n{ESCAPE} = acme_bad.plugin\n", "is not NAME = MODULE"),
        ("[rlsdk.plugins]\nbad/../good = acme_bad.plugin\n", "is not NAME = MODULE"),
        (b"[rlsdk.plugins]\nbad = acme\xff.plugin\n", "not UTF-8"),
        ("[rlsdk.plugins]\nbad = acme_bad.plugin\nbad = acme_good.plugin\n", "more than once"),
        ("[rlsdk.plugins\nbad = x\n", "not there"),
        ("bad = x\n[rlsdk.plugins]\nbad = nowhere.plugin\n", "cannot be found"),
        ("[rlsdk.plugins]\nbad = json\n", "no manifest"),
        ("[rlsdk.plugins]\r\n; a comment\r\nbad = acme_bad.plugin [extra]\r\n", None),
    ],
)
def test_entry_points(site: Site, entry: str | bytes, words: str | None) -> None:
    site.add("bad", entry=entry)
    bad = site.check()
    if words == "not there":
        assert bad is None
    else:
        assert bad is not None
        assert (words is None and find("bad").problem is None) or (words or "") in (bad.problem or "")


@pytest.mark.parametrize(
    "metadata",
    ["", "\n\n", "Name: \x1b[2J\nVersion: \x1b[2J\n", b"\xff\xff", "Name: acme-good\nVersion: 9\n", "x" * 2_000_000],
)
def test_metadata(site: Site, metadata: str | bytes) -> None:
    site.add("bad", metadata=metadata)
    bad = site.check()
    assert bad is not None
    assert (bad.distribution, bad.problem) == ("acme-bad", None)
    assert bad.version in ("1.2.3", "9")
    assert load("bad").id == "bad"


@pytest.mark.parametrize(
    "name", ["rlsdk.toml", "entry_points.txt", "METADATA", "capabilities.json", "presets/CartPole-v1.toml"]
)
@pytest.mark.parametrize("kind", ["pipe", "folder", "loop", "unreadable"])
def test_files_that_are_none(site: Site, name: str, kind: str) -> None:
    """Pipes, folders, links to themselves and unreadable files are not read: reading a pipe would block."""
    package = site.add("bad")
    info = package.with_name("acme_bad-1.2.3.dist-info")
    path = info / name if name in ("entry_points.txt", "METADATA") else package / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    else:
        path.symlink_to("/proc/self/mem")
    bad = site.check()
    assert bad is not None
    if bad.problem is None:
        assert capabilities(bad) is None
        assert load("bad").id == "bad"
        if name.startswith("presets"):
            assert preset("bad", "Pendulum-v1") is None
            with pytest.raises(RlsdkError, match="the preset for CartPole-v1"):
                preset("bad", "CartPole-v1")
    else:
        assert name in ("rlsdk.toml", "entry_points.txt")


def test_a_broken_twin_takes_nothing(site: Site) -> None:
    """While it is broken, a second distribution with the same id or the same extensions does not make these ambiguous."""
    twin = MANIFEST.format(id="good", sdk=">=99") + 'sinks = ["tally"]\nserializers = [".npz"]'
    site.add("bad", manifest=twin, entry="[rlsdk.plugins]\ngood = acme_bad.plugin\n")
    hook = "\n@hookimpl\ndef sinks():\n    return {'tally': lambda folder: None}\n"
    good = MANIFEST.format(id="good", sdk=">=0.1") + 'sinks = ["tally"]'
    site.add("good", manifest=good, code=GOOD.format(first="", id="good") + hook)
    site.check()
    assert load("good").id == "good"
    assert callable(extension("sinks", "tally"))
    assert ".npz" not in extensions("serializers")
    with pytest.raises(PluginError, match="needs rlsdk >=99"):
        extension("serializers", ".npz")
    with pytest.raises(PluginError, match="needs rlsdk >=99"):
        load("acme-bad/good")


@pytest.mark.parametrize(
    ("preset_text", "words"),
    [
        ("[run]\nsteps = " + "1" * 4050, "give a positive whole number"),
        ("[run]\nsteps = 0x" + "f" * 4000, "a very large number"),
        ("[run]\nsteps = 3\nsource = 4", "one line of text"),
        ("x = " + "[" * 4000, "nested too deeply"),
        ("[run]\nsteps = 3\n[settings]\n" + "a." * 2000 + "a = 1", "nested too deeply"),
        ("[run]\nsteps = 3\nstep = 4", "unknown entries"),
        ("[" + "x" * 4000 + "]", "two tables"),
        ("#" * 5000, "larger than 4 kB"),
    ],
)
def test_presets(site: Site, preset_text: str, words: str) -> None:
    """A damaged preset disturbs neither the plugin nor its other presets."""
    folder = site.add("bad") / "presets"
    folder.mkdir()
    (folder / "Bad-v0.toml").write_text(preset_text)
    (folder / "Good-v0.toml").write_text("[run]\nsteps = 5\n")
    assert site.check() is not None
    assert preset_names("bad") == ("Bad-v0", "Good-v0")
    known = preset("bad", "Good-v0")
    assert known is not None
    assert known.steps == 5
    assert preset("bad", "../rlsdk") is None
    for ask in (lambda: preset("bad", "Bad-v0"), lambda: presets("bad")):
        with pytest.raises(RlsdkError) as caught:
            ask()
        assert words in str(caught.value)
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "hook", ["return 3", "return {1: 2}", "return {'tally': 5}", "return {}", "return {'other': print}", "1 / 0"]
)
@pytest.mark.parametrize(("kind", "function"), [("sinks", "sinks"), ("executors", "executors")])
def test_hooks_that_give_something_else(site: Site, hook: str, kind: str, function: str) -> None:
    manifest = MANIFEST.format(id="bad", sdk=">=0.1") + f'{kind} = ["tally"]'
    code = GOOD.format(first="", id="bad") + f"\n@hookimpl\ndef {function}():\n    {hook}\n"
    site.add("bad", manifest=manifest, code=code)
    site.check()
    with pytest.raises(PluginError, match="acme-bad/bad"):
        extension(kind, "tally")


@pytest.mark.parametrize(
    "error", ["ValueError('x' * 10_000)", "SystemExit(3)", "BaseException('a\\nb')", "RecursionError()"]
)
def test_reports_and_sinks_that_raise_are_one_line(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str], error: str
) -> None:
    """A report does not end a complete run; a broken sink is an error that names it."""
    manifest = 'id = "bad"\ntitle = "x"\nsummary = "y"\nsdk = ">=0.1"\nsinks = ["tally"]\nreports = ["tally"]\n'
    hooks = "@hookimpl\ndef sinks(): return {'tally': use}\n@hookimpl\ndef reports(): return {'tally': use}\n"
    code = f"from rlsdk.registry import hookimpl\ndef use(folder): raise {error}\n{hooks}"
    site.add("bad", manifest=manifest, code=code)
    site.listed()
    write_reports(tmp_path)
    assert capsys.readouterr().out.count("no tally: acme-bad/bad 1.2.3 raised ") == 1
    with pytest.raises(PluginError, match=r"acme-bad/bad 1\.2\.3 raised .* in use.*; leave it out") as caught:
        named_sinks(["tally"])[0](tmp_path, False)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 500


CHANGES: list[Callable[[random.Random, bytes], bytes]] = [
    lambda rng, text: text[: rng.randrange(len(text) + 1)],
    lambda rng, text: text[: (i := rng.randrange(len(text)))] + bytes([rng.randrange(256)]) + text[i + 1 :],
    lambda rng, text: text[: (i := rng.randrange(len(text)))] + text[i + rng.randrange(20) :],
    lambda rng, text: text[: (i := rng.randrange(len(text)))] + rng.choice(FRAGMENTS) + text[i:],
    lambda rng, text: text[: (i := rng.randrange(len(text)))] + rng.choice(FRAGMENTS) * 3000 + text[i:],
    lambda rng, text: text + text,
    lambda rng, text: b"\n".join(rng.sample(lines := text.split(b"\n"), len(lines))),
]
FRAGMENTS = [
    b"[",
    b"]",
    b"{",
    b"a.",
    b'"',
    b"'''",
    b'"""',
    b"\\",
    b"\n",
    b"\r",
    b"\0",
    b"=",
    b"#",
    b"\xff",
    b"\x1b[",
    b"\xe2\x80\xae",
    b"1",
]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.full
def test_any_alteration(site: Site, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(150):
        files: dict[str, bytes] = {
            "manifest": MANIFEST.format(id="bad", sdk=">=0.1").encode(),
            "entry": ENTRY.format(id="bad").encode(),
            "metadata": METADATA.format(id="bad").encode(),
        }
        name = rng.choice(list(files))
        for _ in range(rng.randint(1, 3)):
            files[name] = rng.choice(CHANGES)(rng, files[name] or b"x")
        site.add("bad", **files)
        bad = site.check()
        if bad is not None and bad.problem is None:
            assert find(bad.qualified_id) == bad


def test_any_toml_of_the_largest_size_is_read_quickly() -> None:
    """The time of tomllib grows faster than the size of some texts; so their size is limited."""
    rng = random.Random(3)
    pieces = [
        '"',
        "'",
        '"""',
        "'''",
        "\\",
        "\n",
        "#",
        "[",
        "]",
        "{",
        "}",
        "a",
        ".",
        "=",
        ",",
        " ",
        "a.b",
        "[[",
        "a=1\n",
    ]
    with limited():
        for _ in range(100):
            chosen = "".join(rng.choice(pieces) for _ in range(rng.randint(1, 4)))
            with contextlib.suppress(PlainFileError):
                parse_toml(rng.choice(["", "a=", "a=[", "a={", 'a="']) + chosen * (4096 // len(chosen)))
