"""What a user installs: wheel and sdist, built as a release builds them."""

from __future__ import annotations

import email.message
import email.parser
import re
import runpy
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
#: Where each package's files stand in the repository.
PACKAGES = {
    "pykafka_wire": "connector",
    "pykafka_wire/checkpoints": "connector/checkpoints",
    "pykafka_wire/cli": "connector/cli",
    "pykafka_wire/columns": "connector/columns",
    "pykafka_wire/ingest": "connector/ingest",
    "pykafka_wire/ingest/changes": "connector/ingest/changes",
    "pykafka_wire/ingest/files": "connector/ingest/files",
    "pykafka_wire/ingest/landing": "connector/ingest/landing",
    "pykafka_wire/ingest/proof": "connector/ingest/proof",
    "pykafka_wire/ingest/records": "connector/ingest/records",
    "pykafka_wire/ingest/records/json": "connector/ingest/records/json",
    "pykafka_wire/ingest/spark": "connector/ingest/spark",
    "pykafka_wire/ingest/settings": "connector/ingest/settings",
    "pykafka_wire/ingest/startup": "connector/ingest/startup",
    "pykafka_wire/ingest/tables": "connector/ingest/tables",
    "pykafka_wire/ingest/tables/delta": "connector/ingest/tables/delta",
    "pykafka_wire/ingest/tables/iceberg": "connector/ingest/tables/iceberg",
    "pykafka_wire/ingest/watching": "connector/ingest/watching",
    "pykafka_wire/local": "connector/local",
    "pykafka_wire/metrics": "connector/metrics",
    "pykafka_wire/options": "connector/options",
    "pykafka_wire/page": "connector/page",
    "pykafka_wire/sink": "connector/sink",
    "pykafka_wire/sink/exactly_once": "connector/sink/exactly_once",
    "pykafka_wire/source": "connector/source",
    "pykafka_wire/source/planning": "connector/source/planning",
    "pykafka_wire/source/progress": "connector/source/progress",
    "pykafka_wire/values": "connector/values",
    "pykafka_wire/values/avro": "connector/values/avro",
    "pykafka_wire/values/bulk": "connector/values/bulk",
    "pykafka_wire/values/json": "connector/values/json",
    "pykafka_wire/values/single_json": "connector/values/single_json",
    "pykafka_wire/values/protobuf": "connector/values/protobuf",
    "pykafka_wire/values/registry": "connector/values/registry",
    "pykafka_wire/wire": "wire",
    "pykafka_wire/wire/arrow": "wire/arrow",
    "pykafka_wire/wire/cluster": "wire/cluster",
    "pykafka_wire/wire/connection": "wire/connection",
    "pykafka_wire/wire/fetch": "wire/fetch",
    "pykafka_wire/wire/groups": "wire/groups",
    "pykafka_wire/wire/groups/classic": "wire/groups/classic",
    "pykafka_wire/wire/groups/kip848": "wire/groups/kip848",
    "pykafka_wire/wire/produce": "wire/produce",
    "pykafka_wire/wire/protocol": "wire/protocol",
    "pykafka_wire/wire/protocol/messages": "wire/protocol/messages",
    "pykafka_wire/wire/records": "wire/records",
    "pykafka_wire/wire/security": "wire/security",
    "pykafka_wire/wire/security/clouds": "wire/security/clouds",
    "pykafka_wire/wire/settings": "wire/settings",
    "pykafka_wire/wire/transactions": "wire/transactions",
    "pyspark_pykafka_wire": "connector/autoload",
}


def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.parser.Parser().parsestr(archive.read(name).decode())


def test_the_wheel_is_pure_and_named_by_its_version(wheel: Path) -> None:
    import pykafka_wire

    assert wheel.name == f"pykafka_wire-{pykafka_wire.__version__}-py3-none-any.whl"


def test_the_wheel_holds_exactly_the_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {
        f"{package}/{file.name}" for package, folder in PACKAGES.items() for file in (ROOT / folder).glob("*.py")
    }
    others = {"pykafka_wire/py.typed", "pyspark_pykafka_wire/py.typed", "pykafka_wire/cli/log4j2.properties"}
    page = {f"pykafka_wire/page/static/{file.name}" for file in (ROOT / "connector/page/static").iterdir()}
    assert found == expected | others | page


def test_every_folder_with_python_files_is_a_package_of_the_wheel() -> None:
    folders = {
        file.parent.relative_to(ROOT).as_posix() for top in ("connector", "wire") for file in (ROOT / top).rglob("*.py")
    }
    assert folders == set(PACKAGES.values())


def test_the_wheel_demands_neither_spark_nor_delta(wheel: Path) -> None:
    demanded = metadata(wheel).get_all("Requires-Dist") or []
    hard = sorted(line.split(">")[0].strip().lower() for line in demanded if "extra ==" not in line)
    assert hard == ["cramjam", "crc32c", "isal", "lz4", "numpy", "pyarrow", "python-snappy", "zstandard"]
    # An ingest calls mapInArrow, which demands pandas.
    for extra, name in (("spark", "pyspark"), ("delta", "delta-spark"), ("delta", "pandas")):
        assert any(line.startswith(name) and f"extra == '{extra}'" in line.replace('"', "'") for line in demanded), name


def test_the_metadata_says_what_a_user_must_know(wheel: Path) -> None:
    found = metadata(wheel)
    assert found["Name"] == "pykafka-wire"
    assert found["License-Expression"] == "Apache-2.0"
    assert found["License-File"] == "LICENSE"
    assert found["Requires-Python"] == ">=3.10"
    assert found["Description-Content-Type"] == "text/markdown"
    assert len(found.get_payload()) > 500
    assert found.get_all("Project-URL") == ["Documentation, https://pypi.org/project/pykafka-wire/"]


def links(description: str) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", description)


def test_no_link_of_the_long_description_is_dead_on_pypi(wheel: Path) -> None:
    assert all(re.match("https?:", target) for target in links(metadata(wheel).get_payload()))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    made = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")
    released = made["long_description"](readme, "https://example.org/us/it", "v1")
    assert len(links(released)) == len(links(readme)) > 10
    inside = [
        target.removeprefix("https://example.org/us/it/") for target in links(released) if "example.org" in target
    ]
    for target in inside:
        _, ref, path = target.split("/", 2)
        assert ref == "v1"
        assert (ROOT / path.partition("#")[0]).exists(), target
    assert set(made["project_urls"]("https://example.org/us/it", "v1")) == {
        "Source",
        "Documentation",
        "Changelog",
        "Issues",
    }


def test_the_conda_recipe_requires_what_the_wheel_requires(wheel: Path) -> None:
    recipe = yaml.safe_load((ROOT / "conf" / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    found = metadata(wheel)
    assert recipe["context"]["version"] == found["Version"]
    assert f">={recipe['context']['python_min']}" == found["Requires-Python"]
    assert recipe["about"]["license"] == found["License-Expression"]
    required = {each for each in found.get_all("Requires-Dist") or [] if "extra ==" not in each}
    as_conda_forge_names_them = {each.replace("isal>=", "python-isal>=") for each in required}
    run = {each.replace(" ", "") for each in recipe["requirements"]["run"]}
    assert run == as_conda_forge_names_them | {"python>=${{python_min}}"}
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith("/entry_points.txt"))
        section, *commands = archive.read(path).decode().split("\n")
    assert section == "[console_scripts]"
    assert recipe["build"]["python"]["entry_points"] == [each for each in commands if each]


def test_the_sdist_holds_the_sources_and_nothing_built(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames() if archive.getmember(name).isfile()}
    expected = {f"{folder}/{file.name}" for folder in PACKAGES.values() for file in (ROOT / folder).glob("*.py")}
    assert expected <= names
    assert {"pyproject.toml", "setup.cfg", "README.md", "LICENSE", "connector/py.typed"} <= names
    assert not [name for name in names if name.endswith(".pyc") or name.startswith(("build/", "dist/", ".venv/"))]


def test_twine_accepts_both(built: Path) -> None:
    files = [str(path) for path in sorted(built.iterdir())]
    assert len(files) == 2
    command = [sys.executable, "-m", "twine", "check", "--strict", *files]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_check_wheel_contents_finds_nothing(wheel: Path) -> None:
    # W009: two top-level packages, the library and the module that Spark's lookup finds.
    command = [str(Path(sys.executable).with_name("check-wheel-contents")), "--ignore", "W009", str(wheel)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "unzipped"])
def test_the_wheel_works_on_the_path_as_py_files_put_it_there(wheel: Path, zipped: bool, tmp_path: Path) -> None:
    path = wheel
    if not zipped:
        path = tmp_path / "unzipped"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(path)
    code = f"""
import importlib, pkgutil, sys
sys.path.insert(0, {str(path)!r})
import pykafka_wire
assert pykafka_wire.__file__.startswith({str(path)!r}), pykafka_wire.__file__
for module in pkgutil.walk_packages(pykafka_wire.__path__, "pykafka_wire."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
import pyspark_pykafka_wire
assert pyspark_pykafka_wire.__file__.startswith({str(path)!r})
print(pyspark_pykafka_wire.DefaultSource.name(), pykafka_wire.PykafkaWireDataSource.name())
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert found.stdout.strip() == "pykafka-wire pykafka-wire", found.stderr


def test_the_version_stands_in_one_place_of_each_file() -> None:
    import pykafka_wire
    from pykafka_wire.wire.version import VERSION

    found = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert found is not None and found[1] == pykafka_wire.__version__ == VERSION
    assert pykafka_wire.__version__ in (ROOT / "CHANGELOG.md").read_text()
