"""What an import loads: the client never loads pyspark, and the lookup shim never raises."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap

import pytest


def run(code: str) -> str:
    """Output of ``code`` in a fresh interpreter, in which every warning is an error."""
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def test_the_package_loads_neither_pyspark_nor_arrow() -> None:
    assert (
        run("import pykafka_wire, sys; print([m for m in ('pyspark', 'pyarrow', 'numpy') if m in sys.modules])") == "[]"
    )


def test_no_module_of_the_client_loads_pyspark() -> None:
    assert (
        run("""
        import importlib, pkgutil, sys
        import pykafka_wire.wire
        names = [m.name for m in pkgutil.walk_packages(pykafka_wire.wire.__path__, "pykafka_wire.wire.")]
        for name in names:
            importlib.import_module(name)
        assert len(names) > 20, names
        print([m for m in sys.modules if m.split(".")[0] in ("pyspark", "py4j", "wire", "connector")])
        """)
        == "[]"
    )


def test_no_module_of_the_client_loads_a_clouds_library() -> None:
    assert (
        run("""
        import importlib, pkgutil, sys
        import pykafka_wire.wire
        names = [m.name for m in pkgutil.walk_packages(pykafka_wire.wire.__path__, "pykafka_wire.wire.")]
        for name in names:
            importlib.import_module(name)
        assert "pykafka_wire.wire.security.clouds.aws" in names
        libraries = ("botocore", "boto3", "azure", "msal", "google.auth", "requests", "databricks")
        print([m for m in sys.modules if m.startswith(libraries)])
        """)
        == "[]"
    )


@pytest.mark.parametrize(
    ("auth", "blocked", "remedy"),
    [
        ("aws-msk-iam", "botocore", "pip install 'pykafka-wire[aws]'"),
        ("azure", "azure", "pip install 'pykafka-wire[azure]'"),
        ("google", "google.auth", "pip install 'pykafka-wire[google]'"),
    ],
)
def test_a_clouds_library_that_is_missing_is_an_error_with_what_to_install(
    auth: str, blocked: str, remedy: str
) -> None:
    assert remedy in run(f"""
        import sys
        class Blocker:
            def find_spec(self, name, path=None, target=None):
                if name == {blocked!r} or name.startswith({blocked!r} + "."):
                    raise ImportError(name)
        sys.meta_path.insert(0, Blocker())
        from pykafka_wire.wire.errors import SettingsError
        from pykafka_wire.wire.security import sasl
        from pykafka_wire.wire.settings import ClientSettings
        made = ClientSettings.from_options({{"bootstrap.servers": "b:1", "auth": {auth!r}}})
        try:
            sasl.mechanism(made, "b")
        except SettingsError as error:
            print(error)
        """)


def test_the_data_source_is_loaded_when_it_is_asked_for() -> None:
    assert run("from pykafka_wire import PykafkaWireDataSource as s; print(s.name())") == "pykafka-wire"
    assert run("import pykafka_wire; print(pykafka_wire.__version__)").count(".") == 2


@pytest.mark.parametrize("package", ["", ".wire", ".values", ".functions", ".ingest", ".metrics"])
def test_each_public_name_is_found_where_it_is_said_to_be(package: str) -> None:
    module = importlib.import_module(f"pykafka_wire{package}")
    assert module.__all__
    for name in module.__all__:
        assert getattr(module, name) is not None, name


def test_an_unknown_name_is_an_attribute_error() -> None:
    import pykafka_wire

    with pytest.raises(AttributeError, match="nothing_such"):
        pykafka_wire.nothing_such  # noqa: B018


def test_the_shim_offers_the_data_source() -> None:
    assert run("import pyspark_pykafka_wire as s; print(s.DefaultSource.name())") == "pykafka-wire"


#: What the data source needs for its name and its schema. The rest is loaded by what uses it, whose error names what is missing.
_NEEDED = {"pyspark": True, "pyspark.sql.datasource": True, "pykafka_wire": True, "pyarrow": False, "numpy": False}


@pytest.mark.parametrize(("blocked", "needed"), _NEEDED.items())
@pytest.mark.parametrize("error", ["ImportError", "RuntimeError", "AttributeError"])
def test_the_shim_never_raises(blocked: str, needed: bool, error: str) -> None:
    # One pyspark_* module that raises disables Spark's lookup for every data source.
    assert run(f"""
        import sys
        class Blocker:
            def find_spec(self, name, path=None, target=None):
                if name == {blocked!r} or name.startswith({blocked!r} + "."):
                    raise {error}(name)
        sys.meta_path.insert(0, Blocker())
        import pyspark_pykafka_wire
        print(hasattr(pyspark_pykafka_wire, "DefaultSource"))
        """) == str(not needed)


def test_name_and_schema_load_neither_options_nor_the_client_nor_arrow() -> None:
    # Spark starts a process for the name and one for the schema, in each new application.
    assert (
        run("""
        import sys
        import pyspark.sql.datasource
        before = set(sys.modules)
        import pyspark_pykafka_wire
        source = pyspark_pykafka_wire.DefaultSource({"kafka.bootstrap.servers": "host:9092", "subscribe": "orders"})
        assert source.schema().startswith("key binary, value binary, topic string")
        print(sorted(name for name in set(sys.modules) - before if name.partition(".")[0] in ("pykafka_wire", "pyarrow", "numpy")))
        """)
        == "['pykafka_wire', 'pykafka_wire.columns', 'pykafka_wire.columns.source_columns', 'pykafka_wire.concise_errors', "
        "'pykafka_wire.datasource', "
        "'pykafka_wire.worker_pickling']"
    )


def test_the_public_names_are_shown() -> None:
    import pykafka_wire
    import pykafka_wire.ingest

    assert {"read_topic", "PykafkaWireDataSource", "LagListener", "__version__"} <= set(dir(pykafka_wire))
    assert dir(pykafka_wire.ingest) == ["Ingest", "IngestError", "Table"]


#: Of the extras: what an installation without them lacks.
_OPTIONAL = (
    "azure", "botocore", "cjdk", "click", "cryptography", "delta", "deltalake", "duckdb", "google", "gssapi", "jsonschema",
    "opentelemetry", "pandas", "polars", "prometheus_client", "psutil", "pyiceberg", "pytest", "rich", "sqlalchemy", "starlette",
    "tomli", "urllib3", "uvicorn",
)  # fmt: skip
#: The only modules that load one: they are loaded by what has checked that it is there, or names what to install.
_OWNERS = {
    "google": (
        "values.protobuf.linker",
        "values.protobuf.message_versions",
        "values.protobuf.parser",
        "values.protobuf.resolution",
    ),
    "pyiceberg": ("ingest.tables.iceberg.replacement",),
    "opentelemetry": ("metrics.opentelemetry", "metrics.spans"),
    "prometheus_client": ("metrics.prometheus",),
    "psutil": ("page",),
    "pytest": ("testing",),
    "starlette": ("page",),
    "uvicorn": ("page",),
}


def test_each_module_is_loaded_without_the_libraries_of_extras_that_it_does_not_own() -> None:
    """An ingest of JSON needs no Protobuf."""
    shown = run(f"""
        import importlib, pkgutil, sys
        import pykafka_wire
        class Blocker:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in {_OPTIONAL!r}:
                    raise ModuleNotFoundError(name, name=name.split(".")[0])
        sys.meta_path.insert(0, Blocker())
        owners, names = {_OWNERS!r}, 0
        def walk(path, prefix):
            global names
            for module in pkgutil.iter_modules(path, prefix):
                short, names = module.name.removeprefix("pykafka_wire."), names + 1
                if short == "cli":  # ends with what to install; its modules need the extra cli
                    continue
                try:
                    loaded = importlib.import_module(module.name)
                except ModuleNotFoundError as error:
                    owned = owners.get(error.name, ())
                    if not any(short == each or short.startswith(each + ".") for each in owned):
                        print(short, "loads", error.name)
                    continue
                if module.ispkg:
                    walk(loaded.__path__, module.name + ".")
        walk(pykafka_wire.__path__, "pykafka_wire.")
        assert names > 200, names
        """)
    assert shown == ""


@pytest.mark.parametrize("delay_s", [0, 0.02, 0.1])
def test_a_session_that_starts_in_a_thread_lets_the_command_load_spark_meanwhile(delay_s: float) -> None:
    assert (
        run(f"""
        import time
        from pykafka_wire.cli import session

        def no_java():
            raise RuntimeError("no Java is needed here")

        session._silence_sql_errors = no_java
        start = session.SessionStart("ingest")
        time.sleep({delay_s})
        import pykafka_wire.ingest.ingest
        assert start._begun is not None and "no Java" in str(start._begun.exception(60))
        print("loaded")
        """)
        == "loaded"
    )
