"""A page as a front end keeps it: what it is told, and what it would draw."""

from __future__ import annotations

import gzip
import json
from typing import Any

from sag_research.viz import BloomView, scene_data, scene_patch
from sag_research.viz._patch import apply_patch


def unpack(body: Any) -> Any:
    return json.loads(gzip.decompress(bytes(body)))


class Wire:
    """Takes the place of a kernel's channel; pages listen to it."""

    def __init__(self) -> None:
        self.opened: list[dict[str, Any]] = []
        self.pages: list[Page] = []

    def create(self, **opening: Any) -> Comm:
        self.opened.append(opening)
        return Comm(self, opening)


class Comm:
    def __init__(self, wire: Wire, opening: dict[str, Any]) -> None:
        self.wire, self.comm_id = wire, f"comm-{len(wire.opened)}"
        self.opening = opening

    def on_msg(self, callback: Any) -> None:
        self.hear = callback

    def send(self, data: Any = None, metadata: Any = None, buffers: Any = None) -> None:
        if data["method"] == "custom":
            for page in self.wire.pages:
                if page.view.comm is self and page.listens:
                    page.take(data["content"], buffers)

    def close(self, *_: Any, **__: Any) -> None:
        pass


class Page:
    """A front end's model: opened with the widget's whole state, told of changes since."""

    def __init__(self, wire: Wire, view: BloomView, *, listens: bool = True) -> None:
        self.view, self.listens = view, listens
        start = view.get_state()["_start"]
        self.cursor, self.data = start["cursor"], unpack(start["scene"])
        self.messages: list[dict[str, Any]] = []
        self.gaps = 0
        wire.pages.append(self)

    def say(self, **content: Any) -> None:
        message = {"data": {"method": "custom", "content": content}}
        self.view._handle_msg({"content": message, "buffers": []})

    def hello(self) -> None:
        self.listens = True
        self.say(type="hello", cursor=self.cursor)

    def take(self, content: dict[str, Any], buffers: Any) -> None:
        self.messages.append(content)
        if content["type"] == "snapshot":
            if content["at"] >= self.cursor:
                self.cursor, self.data = content["at"], unpack(buffers[0])
        elif content["end"] > self.cursor:
            if content["start"] > self.cursor:
                self.gaps += 1
                return
            for patch in unpack(buffers[0])[self.cursor - content["start"] :]:
                self.data = apply_patch(self.data, patch)
            self.cursor = content["end"]

    def shows(self) -> bool:
        """Whether it would draw what the view is set to."""
        wanted = json.loads(json.dumps(scene_data(self.view.scene)))  # pairs become lists
        return scene_patch(self.data, wanted) == {}
