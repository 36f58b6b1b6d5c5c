"""Whether the Hugging Face hub can be reached, known within seconds.

The hub's own library asks for one file of a model after the other, five times each: that a hub is out of reach takes
it a minute and a half to say.
"""

from __future__ import annotations

import http.client
import ssl
import threading
import urllib.error
import urllib.request


def hub_answers(timeout_s: float = 5.0) -> bool:
    """Return whether the hub, or the mirror that HF_ENDPOINT names, answers anything at all; proxies are used.

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
