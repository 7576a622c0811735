"""The command line. Imports what a command needs only when it runs: the pools must be set before numpy loads."""

import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from voice_runtime.errors import ConfigError, VoiceRuntimeError
from voice_runtime.pipeline import lifeline, pools

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

PipelineFile = Annotated[Path | None, typer.Argument(help="A pipeline file; cpu.toml when left out.")]
Host = Annotated[str, typer.Option(help="Address to listen on; other than loopback needs VOICE_RUNTIME_TOKEN.")]
Port = Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 takes a free one.")]
TlsCert = Annotated[Path | None, typer.Option(help="Certificate (PEM, with its chain): serve https and wss.")]
TlsKey = Annotated[Path | None, typer.Option(help="The certificate's private key (PEM).")]
Proxies = Annotated[
    str, typer.Option(help="Proxies to believe about who the client is: addresses or networks, with commas.")
]


def shared(folder: str) -> Path:
    """A folder that lies beside the package: in a checkout at its top, in a wheel inside the package."""
    package = Path(__file__).parent
    inside = package / folder
    return inside if inside.is_dir() else package.parent / folder


def default_pipeline() -> Path:
    return shared("pipelines") / "cpu.toml"


@app.command()
def serve(
    pipeline: PipelineFile = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    forwarded_allow_ips: Proxies = "",
) -> None:
    """Serve a pipeline: gateway and workers, supervised."""
    if lifeline.PARENT in os.environ:  # somebody's private server
        lifeline.die_with_parent()
    _serve(pipeline, (host, port), (tls_cert, tls_key), forwarded_allow_ips, supervise=True)


@app.command()
def gateway(
    pipeline: PipelineFile = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    forwarded_allow_ips: Proxies = "",
) -> None:
    """Serve only the gateway; start each worker with `voice-runtime worker`."""
    _serve(pipeline, (host, port), (tls_cert, tls_key), forwarded_allow_ips, supervise=False)


@app.command()
def worker(pipeline: Path, stage: str) -> None:
    """Run the worker process of a stage (and of the stages that share it)."""
    lifeline.die_with_parent()
    from voice_runtime.pipeline import config, wire, worker

    loaded = config.load(pipeline)
    if stage not in loaded.stages:
        raise ConfigError(f"stage is {stage!r}, expected one of {', '.join(loaded.stages)}")
    folder = os.environ.get("VOICE_RUNTIME_SOCKETS")
    worker.run(loaded, stage, Path(folder) if folder else wire.runtime_folder(loaded.name))


@app.command()
def check(pipeline: PipelineFile = None) -> None:
    """Check a pipeline file without starting anything."""
    from voice_runtime.pipeline import config

    path = pipeline or default_pipeline()
    loaded = config.load(path)
    for name, stage in loaded.stages.items():
        typer.echo(
            f"{name}: {type(stage).__struct_config__.tag} in worker {stage.worker}, then {stage.next or 'session'}"
        )
    typer.echo(f"{path}: ok")


@app.command()
def doctor(
    repair: Annotated[bool, typer.Option("--repair", help="Convert or clean up what is missing or damaged.")] = False,
) -> None:
    """Show the weights and the machine."""
    from rich.console import Console

    from voice_runtime import assets, doctor

    if repair:
        assets.repair()
    if not doctor.report(Console()):
        raise typer.Exit(1)


@app.command()
def talk(
    wav: Path,
    out: Annotated[Path | None, typer.Option(help="Write the agent's audio to this WAV.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of lines.")] = False,
    url: Annotated[
        str | None, typer.Option(help="A running server, ws://host:port; else a private one starts.")
    ] = None,
    pipeline: Annotated[Path | None, typer.Option(help="Pipeline of the private server.")] = None,
) -> None:
    """Play a WAV file to the agent as a live caller would, in real time, and take its answer."""
    from voice_runtime import talk

    result = asyncio.run(talk.talk(wav, out, url, pipeline or default_pipeline(), None if as_json else typer.echo))
    if as_json:
        typer.echo(json.dumps(result))


@app.command()
def dial(  # noqa: PLR0913 - a call's options, each by its name
    wav: Path,
    protocol: Annotated[str, typer.Option(help="The carrier: twilio, telnyx, plivo, vonage, exotel, asterisk ...")] = (
        "twilio"
    ),
    out: Annotated[Path | None, typer.Option(help="Write what the caller heard to this WAV.")] = None,
    mixed: Annotated[bool, typer.Option("--mixed", help="With the caller's own voice in it.")] = False,
    url: Annotated[
        str | None,
        typer.Option(help="The agent, ws://host:port/telephony/CARRIER or tcp://host:port; else a private one starts."),
    ] = None,
    press: Annotated[str, typer.Option(help="Keys to press after the recording.")] = "",
    parameter: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, of the call; may be repeated.")] = None,
    pipeline: Annotated[Path | None, typer.Option(help="Pipeline of the private server.")] = None,
) -> None:
    """Play a WAV file into a telephone call as a carrier would, and tell what happens. Fails when a rule is broken."""
    from voice_runtime import dial

    named = dict(pair.split("=", 1) for pair in parameter or [] if "=" in pair)
    if len(named) != len(parameter or []):
        raise ConfigError(f"parameter is {parameter}, expected NAME=VALUE, each name once")
    plan = dial.Plan(wav, protocol, url, named, press, out, mixed)
    if asyncio.run(dial.dial(plan, pipeline or default_pipeline(), typer.echo)):
        raise typer.Exit(1)


@app.command()
def say(
    text: Annotated[str | None, typer.Argument(help="What to say; standard input when left out.")] = None,
    out: Annotated[Path, typer.Option(help="Write the speech to this WAV.")] = Path("say.wav"),
    pipeline: Annotated[Path | None, typer.Option(help="Whose voice; the default pipeline's when left out.")] = None,
) -> None:
    """Speak a text with a pipeline's voice."""
    from voice_runtime import say
    from voice_runtime.pipeline import config
    from voice_runtime.pipeline.worker import quieten_libraries

    quieten_libraries()
    said = text if text is not None else sys.stdin.read()
    length_s = say.say(config.load(pipeline or default_pipeline()), said, out)
    typer.echo(f"{out}: {length_s:.1f} s")


def _serve(
    pipeline: Path | None,
    where: tuple[str, int],
    tls: tuple[Path | None, Path | None],
    proxies: str,
    *,
    supervise: bool,
) -> None:
    import uvloop

    from voice_runtime.gateway import server
    from voice_runtime.pipeline import config

    path = (pipeline or default_pipeline()).resolve()
    token = os.environ.get("VOICE_RUNTIME_TOKEN")
    options = server.ServeOptions(path, *where, token, supervise, shared("web"), *tls, proxies)

    def announce(page: str) -> None:
        typer.echo(f"Ready. Open {page}")

    uvloop.run(server.serve(config.load(path), options, announce))


def main() -> None:
    """Entry point: our own errors are one line, not a traceback."""
    pools.set_to_one_thread()
    try:
        _start_logging(os.environ.get("VOICE_RUNTIME_LOG", "INFO").upper())
        app()
    except (VoiceRuntimeError, OSError) as error:  # OSError: a port that is taken, a file that is not there
        typer.echo(f"{type(error).__name__}: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _start_logging(level: str) -> None:
    """Our own logs at `level`; those of libraries only from warnings on: below, they hold what was said, and tokens."""
    if level not in logging.getLevelNamesMapping():
        raise ConfigError(f"VOICE_RUNTIME_LOG is {level!r}, expected DEBUG, INFO, WARNING or ERROR")
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("voice_runtime").setLevel(level)


if __name__ == "__main__":
    main()
