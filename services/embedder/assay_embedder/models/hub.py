"""Models on the Hugging Face hub; an unreachable hub is reported within seconds.

The hub's own library requests a model's files one by one, five times each, and takes a minute and a half to report an
unreachable hub.
"""

from __future__ import annotations

import http.client
import ssl
import threading
import urllib.error
import urllib.request
from pathlib import Path

_UNREAD = ("*.bin", "*.h5", "*.msgpack", "*.onnx", "*.ot", "*.pt", "*.pth", "*.ckpt", "*.gguf", "*.tflite", "*.py")
_UNREAD_FOLDERS = ("onnx/*", "openvino/*", "coreml/*", "tf_model*", "images/*")
_ABSENT = Path("/nonexistent")


class NotFoundError(Exception):
    """The model does not exist; the message says whether the hub or its cache was asked."""


class Source:
    """A model on the hub, or in its cache if the hub does not answer.

    Args:
        name: The model's id, e.g. "intfloat/multilingual-e5-small".
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._online = hub_answers()

    def file(self, path: str) -> Path:
        """Return the path of one of its files, whether or not the model has that file.

        Raises:
            NotFoundError: There is no such model.
        """
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError

        try:
            return Path(hf_hub_download(self._name, path, local_files_only=not self._online))
        except EntryNotFoundError:  # also of the cache, which does not say whether it is the file or the model
            return _ABSENT
        except (OSError, ValueError) as error:
            raise self._missing(error) from error

    def folder(self) -> Path:
        """Download it into the hub's cache, without formats that are never read; return the folder.

        Raises:
            NotFoundError: There is no such model.
        """
        from huggingface_hub import snapshot_download

        unread = [*_UNREAD, *_UNREAD_FOLDERS]
        try:
            return Path(snapshot_download(self._name, ignore_patterns=unread, local_files_only=not self._online))
        except (OSError, ValueError) as error:
            raise self._missing(error) from error

    def _missing(self, error: Exception) -> NotFoundError:
        if not self._online:
            return NotFoundError("it is no folder, the hub does not answer, and its cache on this machine lacks it")
        return NotFoundError(next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip("."))


def hub_answers(timeout_s: float = 5.0) -> bool:
    """Return whether the hub, or the mirror that HF_ENDPOINT names, answers at all; proxies are used.

    Args:
        timeout_s: How long to wait for it, in seconds, for all its addresses together.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    answered = threading.Event()
    probe = threading.Thread(target=_ask, args=(constants.ENDPOINT, timeout_s, answered), daemon=True)
    probe.start()
    probe.join(timeout_s)
    return answered.is_set()


def _ask(url: str, timeout_s: float, answered: threading.Event) -> None:
    try:
        request = urllib.request.Request(url, method="HEAD")  # noqa: S310 - the operator names the hub
        with urllib.request.urlopen(request, timeout=timeout_s):  # noqa: S310
            answered.set()
    except urllib.error.HTTPError:
        answered.set()
    except urllib.error.URLError as error:
        # Its certificate is checked by other rules than the hub's library has: that library shall judge it.
        if isinstance(error.reason, ssl.SSLError):
            answered.set()
    except (OSError, ValueError, http.client.HTTPException):
        return
