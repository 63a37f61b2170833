"""How large a micro-batch may be, by the command line of the driver's JVM."""

from __future__ import annotations

import pytest

from pykafka_wire.sink.exactly_once.size_limit import default_max_bytes, max_bytes_of, missing_result_limit

MIB = 1 << 20


@pytest.mark.parametrize(
    ("command_line", "expected"),
    [
        ([], 128 * MIB),
        (["java", "-Xmx4g", "org.apache.spark.deploy.SparkSubmit"], 512 * MIB),
        (["java", "-Xmx1g", "-Xmx2048m"], 256 * MIB),  # the last one counts
        (["java", "-Xmx4096M", "--conf", "spark.driver.maxResultSize=500m"], 250 * MIB),
        (["java", "-Xmx4g", "--conf", "spark.driver.maxResultSize=0"], 512 * MIB),
        (["java", "-Xmx32g"], 512 * MIB),  # Spark's own spark.driver.maxResultSize of 1g
        (["java", "-Xmx1073741824"], 128 * MIB),
    ],
)
def test_an_eighth_of_the_heap_and_half_of_the_results(command_line: list[str], expected: int) -> None:
    assert max_bytes_of(command_line) == expected


def test_where_no_driver_is_above_spark_s_defaults_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pykafka_wire.sink.exactly_once.size_limit._command_line_of_jvm", list
    )  # a build server's may be above
    assert default_max_bytes() == 128 * MIB


@pytest.mark.parametrize(
    ("command_line", "expected"),
    [
        ([], "spark.driver.maxResultSize=256m"),
        (["java", "-Xmx8g"], None),
        (["java", "-Xmx2g"], "spark.driver.maxResultSize=512m"),
        (["java", "-Xmx2g", "--conf", "spark.driver.maxResultSize=512m"], None),
        (["java", "-Xmx8g", "--conf", "spark.driver.maxResultSize=0"], "spark.driver.maxResultSize=2048m"),
    ],
)
def test_results_above_the_drivers_heap_warn_with_the_setting(command_line: list[str], expected: str | None) -> None:
    assert missing_result_limit(command_line) == expected
