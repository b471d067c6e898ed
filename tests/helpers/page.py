"""HTML pages of reports, read as a browser would; what is not nested fails."""
import html.parser


class Page(html.parser.HTMLParser):
    """The tags, attributes and text of a page; its ids, scripts by id, and whether boxes are checked, by codec."""
    VOID = {"meta", "rect", "line", "path", "input", "br"}

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], ""
        self.ids, self.scripts, self.boxes = [], {}, {}
        self.feed(text)
        self.close()
        assert not self.open

    def handle_startendtag(self, tag, attrs):
        named = dict(attrs)
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [named["id"]] if "id" in named else []
        if "data-codec" in named and tag == "input":
            self.boxes[named["data-codec"]] = "checked" in named

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in self.VOID:
            self.open.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1][0] == "script":
            self.scripts[self.open[-1][1].get("id")] = data
