"""``jars``: downloads Java and Delta's two jars in advance, or for a machine that cannot download them."""

from __future__ import annotations

import click

from pykafka_wire.cli.connection import json_option, output
from pykafka_wire.cli.working import working
from pykafka_wire.errors import MissingLibraryError


@click.command()
@json_option
def jars() -> None:
    """Download Java, if this machine has none, and Delta's two jars for the installed Spark. Print the folder with the jars.

    Commands that start Spark download these at their first start. For a machine without access to Maven Central, copy the folder
    there, and set PYKAFKA_WIRE_CACHE to it; or set PYKAFKA_WIRE_IVY_SETTINGS to an Ivy settings file that names a mirror. Java is
    not in the folder: install it on that machine.
    """
    try:
        import pyspark
    except ModuleNotFoundError as error:
        raise MissingLibraryError("pykafka-wire jars needs pyspark: pip install 'pykafka-wire[delta]'.") from error
    from pykafka_wire.local import JarResolutionError, JavaNotFoundError, cache_dir, delta_jars, ensure_java

    try:
        with working("looking for Java, and for Delta's jars"):
            java = ensure_java()
            paths = delta_jars(".".join(pyspark.__version__.split(".")[:2]))
    except (JavaNotFoundError, JarResolutionError) as error:
        raise click.ClickException(str(error)) from error
    if output().json:
        output().document({"folder": str(cache_dir()), "jars": list(map(str, paths)), "java": str(java.home)})
        return
    for path in paths:
        click.echo(path)
    click.echo(f"Java {java.version}: {java.home}")
    click.echo(f"For another machine: copy {cache_dir()}, set PYKAFKA_WIRE_CACHE to it there, and install Java.")
