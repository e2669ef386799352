"""The settings of a process, from flags, the environment and a file.

A setting comes from the first of these that has it: the flag, the variable PARSYNC_<NAME>, a TOML
file, the default. The file is `config`, else the file that PARSYNC_CONFIG names, else parsync.toml
in the working directory. Settings that a cluster shares (partitions, shards, gap_s, lease_s) are
None unless set. None means the running cluster's value, see store/cluster.py.

Keep a password in a file, and name the file in `password_file`. Loading the settings puts the
password into `url`.
"""

import os
import tomllib
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from .errors import InvalidInput
from .model.address import check_address, safe_url, with_password
from .model.address_rules import BadAddress
from .model.ids import check_name, shown
from .model.options import Strategy, TaskOptions
from .model.parameters import with_samples

CONFIG_VARIABLE: Final = "PARSYNC_CONFIG"
RULES_TABLE: Final = "place"
"""The table of the TOML file that is no setting: which tasks are placed, see `load_rules`."""
_from_file: ContextVar[dict[str, Any] | None] = ContextVar("_from_file", default=None)

DEFAULT_FORGET_S: Final = 3600.0
"""Seconds for which the record of a node that is down is kept."""

_VALID_VALUES: Final = {
    "url": "redis://HOST:PORT/DB or valkey://, rediss:// or valkeys:// with TLS, unix:///PATH, or "
    "sentinel://HOST:PORT,HOST:PORT/DB?service=NAME, or redis+cluster://HOST:PORT,HOST:PORT",
    "cluster": "1 to 64 letters, digits or _.-",
    "partitions": "a whole number from 1 to 4096",
    "shards": "a whole number from 1 to 256",
    "gap_s": "a number of seconds from 0.01 to 60",
    "lease_s": "a number of seconds from 0.5 to 3600",
    "strategy": f"one of {', '.join(Strategy)}",
    "tau_s": "a number of seconds from 0.001 to 3600",
    "retention_s": "a whole number of seconds from 1 to 31536000",
    "max_starts": "a whole number from 1 to 1000",
    "password_file": "a readable file whose first line is the password",
    "health_file": "an absolute path of a file on this machine",
    "log_format": "text or json",
    "forget_s": "a number of seconds from 1 to 31536000",
    "standstill_s": "a number of seconds from 1 to 31536000",
    "lock_dir": "an absolute path of a folder on this machine's own disk",
}
"""The rule of each setting: the end of the sentence that refuses a value."""


def _check_cluster(name: str) -> str:
    return check_name("cluster name", name)


def read_password(path: Path) -> str:
    """Return the first line of a file, without spaces around it; raises InvalidInput."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidInput(f"password file {path} cannot be read: {why}") from None
    if not lines or not lines[0].strip():
        raise InvalidInput(f"password file {path} is empty: its first line must be the password")
    return lines[0].strip()


def _check_file(path: Path | None) -> Path | None:
    if path is not None:
        read_password(path)
    return path


def _check_folder(path: Path | None) -> Path | None:
    if path is not None and not path.is_absolute():
        raise ValueError("not an absolute path")
    return path


class Settings(BaseSettings):
    """The settings of a process; make an object with `Settings.load`."""

    model_config = SettingsConfigDict(
        env_prefix="PARSYNC_",
        frozen=True,
        extra="forbid",
        env_ignore_empty=True,
        hide_input_in_errors=True,
    )

    url: Annotated[str, AfterValidator(check_address)] = Field(
        "redis://127.0.0.1:6379/0", repr=False
    )
    cluster: Annotated[str, AfterValidator(_check_cluster)] = "parsync"
    partitions: int | None = Field(None, ge=1, le=4096)
    shards: int | None = Field(None, ge=1, le=256)
    gap_s: float | None = Field(None, ge=0.01, le=60, allow_inf_nan=False)
    lease_s: float | None = Field(None, ge=0.5, le=3600, allow_inf_nan=False)
    strategy: Strategy = Strategy.ADAPTIVE
    tau_s: float = Field(1.5, ge=0.001, le=3600, allow_inf_nan=False)
    retention_s: int = Field(86_400, ge=1, le=31_536_000)
    max_starts: int = Field(3, ge=1, le=1000)
    password_file: Annotated[Path | None, AfterValidator(_check_file)] = None
    health_file: Annotated[Path | None, AfterValidator(_check_folder)] = None
    log_format: Literal["text", "json"] = "text"
    forget_s: float = Field(DEFAULT_FORGET_S, ge=1, le=31_536_000, allow_inf_nan=False)
    standstill_s: float = Field(600.0, ge=1, le=31_536_000, allow_inf_nan=False)
    lock_dir: Annotated[Path | None, AfterValidator(_check_folder)] = None

    @model_validator(mode="after")
    def _complete_url(self) -> "Settings":
        if self.password_file is not None:
            self.__dict__["url"] = with_password(self.url, read_password(self.password_file))
        return self

    @classmethod
    def load(cls, config: Path | str | None = None, **flags: Any) -> "Settings":
        """Return the settings by flags, environment and file.

        flags: a flag that is None was not given.
        config: the TOML file.

        Raises InvalidInput with a sentence for each wrong value, which names the setting, its
        source, and what would be right.
        """
        set_flags = {name: value for name, value in flags.items() if value is not None}
        for name in set_flags:
            if name not in _VALID_VALUES:
                raise InvalidInput(
                    f"unknown setting {name!r}: known are {', '.join(_VALID_VALUES)}"
                )
        path = _config_path(config)
        file_values = _read_toml(path) if path else {}
        token = _from_file.set(
            {name: value for name, value in file_values.items() if name != RULES_TABLE}
        )
        try:
            return cls(**set_flags)
        except ValidationError as error:
            raise InvalidInput(
                "; ".join(_sentence(dict(e), set_flags, path) for e in error.errors())
            ) from None
        except RecursionError:
            raise InvalidInput("a setting is nested too deep: each is a number or a text") from None
        finally:
            _from_file.reset(token)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources: flags, then the environment, then the file that `load` has read."""
        return init_settings, env_settings, InitSettingsSource(settings_cls, _from_file.get() or {})


def _config_path(config: Path | str | None) -> Path | None:
    if named := config or os.environ.get(CONFIG_VARIABLE):
        return Path(named)
    default = Path("parsync.toml")
    return default if default.is_file() else None


def _read_toml(path: Path) -> dict[str, Any]:
    """Return the settings of a TOML file.

    Raises InvalidInput for a file that cannot be read, is not TOML, or has unknown names.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"settings file {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InvalidInput(f"settings file {path} is not TOML: {error}") from None
    if unknown := [name for name in values if name not in (*_VALID_VALUES, RULES_TABLE)]:
        raise InvalidInput(
            f"unknown setting {unknown[0]!r} in {path}: known are {', '.join(_VALID_VALUES)}, and "
            f"[{RULES_TABLE}]"
        )
    return values


def load_rules(config: Path | str | None = None) -> dict[str, Any]:
    """Return the [place] rules of the TOML file: task name or pattern -> options or a bool.

    Raises InvalidInput.
    """
    path = _config_path(config)
    rules = _read_toml(path).get(RULES_TABLE, {}) if path else {}
    if not isinstance(rules, dict):
        raise InvalidInput(
            f"[{RULES_TABLE}] in {path} is not valid: it must be a table, with a rule for each "
            "task name"
        )
    for name, rule in rules.items():
        try:
            if not isinstance(rule, bool):
                TaskOptions.of(with_samples(rule) if isinstance(rule, dict) else rule)
        except InvalidInput as error:
            raise InvalidInput(f'the rule [{RULES_TABLE}."{name}"] in {path}: {error}') from None
    return rules


_REPEATED_OPTIONS: Final = (
    "label",
    "resource",
    "taint",
    "device",
    "device_resource",
    "device_variable",
)
_NODE_VARIABLES: Final = {
    "parsync": "PARSYNC_NODE",
    "parsync_only": "PARSYNC_NODE_ONLY",
    "parsync_node": "PARSYNC_NODE_NAME",
    "parsync_slots": "PARSYNC_NODE_SLOTS",
    "parsync_score": "PARSYNC_NODE_SCORE",
    "parsync_shared_devices": "PARSYNC_NODE_SHARED_DEVICES",
    "parsync_notice": "PARSYNC_NODE_NOTICE",
    "parsync_transient": "PARSYNC_NODE_TRANSIENT",
    "parsync_capacity": "PARSYNC_NODE_CAPACITY",
    "parsync_shrink_after": "PARSYNC_NODE_SHRINK_AFTER",
    **{f"parsync_{name}": f"PARSYNC_NODE_{name.upper()}S" for name in _REPEATED_OPTIONS},
}
"""Options of a worker that make it a node -> the environment variable for the option."""
WITH_SCHEDULER: Final = "PARSYNC_NODE_WITH_SCHEDULER"
"""The environment variable for --parsync-with-scheduler, which does not make a worker a node."""
_YES_OR_NO: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def node_options(flags: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a worker's node options by flag or environment, and the source of each.

    Without flags, PARSYNC_NODE=0 means that the worker is no node, whatever the other variables
    are. Raises InvalidInput.
    """
    options = {
        name: value
        for name, value in flags.items()
        if value is not None and value is not False and value != ()
    }
    sources = {name: f"--{name.replace('_', '-')}" for name in options}
    variables = {name: os.environ.get(variable, "") for name, variable in _NODE_VARIABLES.items()}
    if (
        not options
        and variables["parsync"]
        and _node_value("parsync", variables["parsync"]) is False
    ):
        return {}, {}
    for name, text in variables.items():
        if text and name not in options and (value := _node_value(name, text)) is not False:
            options[name] = value
            sources[name] = _NODE_VARIABLES[name]
    return options, sources


def wants_scheduler(flag: Any) -> bool:
    """Return whether a worker runs a scheduler beside itself, by flag or environment.

    Raises InvalidInput.
    """
    text = os.environ.get(WITH_SCHEDULER, "").lower()
    if text and not flag and text not in _YES_OR_NO:
        raise InvalidInput(f"{WITH_SCHEDULER}={shown(text)} is not valid: it must be 1 or 0")
    return bool(flag) or _YES_OR_NO.get(text, False)


def _node_value(name: str, text: str) -> Any:
    """Return a variable's value in the form that Celery gives the flag's; raises InvalidInput."""
    yes: tuple[Callable[[str], Any], str] = (lambda word: _YES_OR_NO[word.lower()], "1 or 0")
    readers: dict[str, tuple[Callable[[str], Any], str]] = {
        **dict.fromkeys(
            ("parsync", "parsync_only", "parsync_shared_devices", "parsync_transient"), yes
        ),
        "parsync_node": (str, "a name"),
        "parsync_notice": (str, "a source"),
        "parsync_slots": (int, "a whole number"),
        "parsync_score": (float, "a number"),
        "parsync_capacity": (str, "a source"),
        "parsync_shrink_after": (float, "a number of seconds"),
    }
    convert, right = readers.get(
        name, (lambda words: tuple(word.strip() for word in words.split(",")), "")
    )
    try:
        return convert(text)
    except (ValueError, KeyError):
        raise InvalidInput(
            f"{_NODE_VARIABLES[name]}={shown(text)} is not valid: it must be {right}"
        ) from None


def _sentence(error: dict[str, Any], flags: dict[str, Any], path: Path | None) -> str:
    """Return the sentence that refuses a value, without passwords."""
    name = str(error["loc"][0])
    value = error["input"]
    if name in flags:
        source = ""
    elif (variable := f"PARSYNC_{name.upper()}") in map(str.upper, os.environ):
        source = f" (from {variable})"
    else:
        source = f" (from {path})"
    # A path is shown whole, although it may look like an address: '/worker@gpu/password'.
    is_text = isinstance(value, str) and not value.startswith("/")
    value_shown = shown(safe_url(value) if is_text else value)
    why = error.get("ctx", {}).get("error")
    right = f"{why}; an address is" if isinstance(why, BadAddress) else "it must be"
    return f"setting {name}={value_shown}{source} is not valid: {right} {_VALID_VALUES[name]}"
