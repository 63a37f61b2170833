"""Draws docs/dashboard.png: every panel of conf/grafana-dashboard.json, by a real Prometheus that scrapes real queries.

    make dashboard    (prometheus and promtool on the PATH, as from Debian's package prometheus)

Two queries read a local Kafka for some minutes, while a producer writes faster and slower. promtool checks the metrics' text,
Prometheus evaluates the panels' expressions as Grafana would have it do, and matplotlib draws the results: the picture has the
figures of Grafana's, not its looks.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from contextlib import closing
from datetime import datetime
from pathlib import Path
from socket import create_server
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.dates import ConciseDateFormatter
from matplotlib.ticker import EngFormatter
from pyspark.sql import SparkSession

from pykafka_wire import metrics
from pykafka_wire.local import LocalCluster
from pykafka_wire.wire import RecordProducer
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import create_topics
from pykafka_wire.wire.settings import ClientSettings

ROOT = Path(__file__).resolve().parents[1]
DASHBOARD = ROOT / "conf" / "grafana-dashboard.json"
#: Records a second, for a quarter of the time each: the second is more than the queries' limit lets them read.
PACES = (400, 3_000, 200, 800)
OFFSETS_PER_TRIGGER = {"orders": "900", "payments": "2500"}


def produce(servers: str, topics: list[str], seconds: float, stop: threading.Event) -> None:
    """Write to each topic at the paces, one after the other."""
    with RecordProducer({"bootstrap.servers": servers}) as producer:
        started = time.monotonic()
        while not stop.is_set():
            pace = PACES[min(len(PACES) - 1, int((time.monotonic() - started) / seconds * len(PACES)))]
            for topic in topics:
                for number in range(pace // 4):
                    producer.send(topic, b"v" * 200, partition=number % 4)
            producer.flush()
            stop.wait(0.25)


def run_queries(spark: Any, servers: str, folder: Path) -> list[Any]:
    queries = []
    for topic, limit in OFFSETS_PER_TRIGGER.items():
        stream = spark.readStream.format("pykafka-wire").options(
            **{"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"},
            maxOffsetsPerTrigger=limit, taskMetrics="driver", groupIdPrefix=topic,
        )  # fmt: skip
        writer = stream.load().writeStream.queryName(topic).format("noop").trigger(processingTime="2 seconds")
        queries.append(writer.option("checkpointLocation", str(folder / topic)).start())
    return queries


def ask(url: str, path: str, **parameters: Any) -> Any:
    query = urllib.parse.urlencode(parameters)
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{query}", timeout=30) as response:
        return json.load(response)["data"]


def free_port() -> int:
    with closing(create_server(("127.0.0.1", 0))) as listening:
        return int(listening.getsockname()[1])


def check_text(port: int) -> None:
    """Let promtool check what Prometheus scrapes."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
        text = response.read()
    subprocess.run(["promtool", "check", "metrics"], input=text, check=True)
    print(f"promtool accepts {len(text.splitlines())} lines")


def expression_of(target: dict[str, Any], seconds: float) -> str:
    """A panel's expression with Grafana's variables in place, and rates over a minute, since the picture has only a few."""
    text = str(target["expr"]).replace("$query", ".*").replace("$__range", f"{int(seconds)}s")
    return re.sub(r"\[5m\]", "[1m]", text)


def draw(url: str, start: float, end: float, out: Path) -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    # The queries are no ingest.
    panels = [panel for panel in dashboard["panels"] if "pykafka_wire_ingest" not in panel["targets"][0]["expr"]]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = plt.figure(figsize=(15, height * 0.36), dpi=80, layout="constrained")
    grid = figure.add_gridspec(height, 24)
    for panel in panels:
        position = panel["gridPos"]
        axes = figure.add_subplot(
            grid[position["y"] : position["y"] + position["h"], position["x"] : position["x"] + position["w"]]
        )
        axes.set_title(panel["title"], fontsize=10, loc="left")
        unit = panel["fieldConfig"]["defaults"]["unit"]
        if panel["type"] == "stat":
            series_list = ask(url, "query", query=expression_of(panel["targets"][0], end - start), time=end)["result"]
            value = float(series_list[0]["value"][1]) if series_list else 0.0
            axes.text(0.5, 0.4, f"{value:,.0f}", ha="center", va="center", fontsize=26)
            axes.set_axis_off()
            continue
        lines = []
        for target in panel["targets"]:
            asked = {"query": expression_of(target, end - start), "start": start, "end": end, "step": 2}
            for series in ask(url, "query_range", **asked)["result"]:
                label = re.sub(
                    r"{{(\w+)}}",
                    lambda name, labels=series["metric"]: labels.get(name[1], ""),  # type: ignore[misc]
                    target["legendFormat"],
                )
                label = re.sub(r"-[0-9a-f]{8}-[0-9a-f-]{27}", "-…", label)
                times = [datetime.fromtimestamp(seconds) for seconds, _ in series["values"]]
                lines.append((label, times, [float(value) for _, value in series["values"]]))
        if panel["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal" and lines:
            times = max((point[1] for point in lines), key=len)
            values = [[dict(zip(ts, vs, strict=True)).get(time, 0.0) for time in times] for _, ts, vs in lines]
            axes.stackplot(times, values, labels=[label for label, _, _ in lines], alpha=0.7)
        else:
            for label, times, values_of_line in lines:
                axes.plot(times, values_of_line, label=label, linewidth=1.2)
        axes.set_xlim(datetime.fromtimestamp(start), datetime.fromtimestamp(end))
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(
            EngFormatter(unit="B/s" if unit == "Bps" else "s" if unit == "s" else "", sep="")
        )
        axes.xaxis.set_major_formatter(ConciseDateFormatter(axes.xaxis.get_major_locator()))
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
        if lines:
            axes.legend(fontsize=6, loc="upper left", ncols=2)
    figure.savefig(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "dashboard.png")
    arguments = parser.parse_args()

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    stop = threading.Event()
    with LocalCluster() as kafka, tempfile.TemporaryDirectory() as temporary:
        servers, folder, port = kafka.bootstrap_servers, Path(temporary), free_port()
        with Cluster(ClientSettings.from_options({"bootstrap.servers": servers})) as cluster:
            create_topics(cluster, dict.fromkeys(OFFSETS_PER_TRIGGER, (4, 1)))
        server = metrics.serve_prometheus(spark, port=0, addr="127.0.0.1")
        target = {"job_name": "spark", "static_configs": [{"targets": [f"127.0.0.1:{server.port}"]}]}
        configuration = {"global": {"scrape_interval": "1s"}, "scrape_configs": [target]}
        (folder / "prometheus.yml").write_text(json.dumps(configuration))  # JSON is YAML
        command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
        with subprocess.Popen(command) as prometheus:
            try:
                queries = run_queries(spark, servers, folder)
                writing = threading.Thread(
                    target=produce, args=(servers, list(OFFSETS_PER_TRIGGER), arguments.seconds, stop)
                )
                writing.start()
                time.sleep(arguments.seconds)
                check_text(server.port)
                end = time.time()
                draw(f"http://127.0.0.1:{port}", end - arguments.seconds + 20, end, arguments.out)
                stop.set()
                writing.join()
                for query in queries:
                    query.stop()
            finally:
                stop.set()
                prometheus.terminate()
        server.close()
    spark.stop()


if __name__ == "__main__":
    main()
