"""Reports of parts: a header with sizes and a hash, coded pieces, words, pipelines, and files of all parts."""
import struct

import xxhash

HEADER = struct.Struct("<8s40sIIQQQQQ")
RUN = struct.Struct("<8QIIQ")


class Report:
    """What a report says; `bytes()` has the hash that belongs to it."""

    def __init__(self, content):
        (self.magic, self.version, self.number, self.count, self.data_nbytes, words, runs, files, self.hash) = \
            HEADER.unpack_from(content)
        at = HEADER.size
        self.data, at = content[at:at + self.data_nbytes], at + self.data_nbytes
        self.words, at = content[at:at + words], at + words
        self.runs, end = [], at + runs
        while at < end:
            run = Run(content, at)
            self.runs.append(run)
            at += run.size()
        self.files = content[end:end + files]

    def bytes(self):
        runs = b"".join(run.bytes() for run in self.runs)
        head = HEADER.pack(self.magic, self.version, self.number, self.count, self.data_nbytes, len(self.words),
                           len(runs), len(self.files), 0)[:-8]
        rest = self.words + runs + self.files
        self.hash = xxhash.xxh3_64_intdigest(rest, xxhash.xxh3_64_intdigest(head))
        return head + struct.pack("<Q", self.hash) + self.data + rest


class Run:
    """A pipeline: which jobs of how many, and what each found."""

    def __init__(self, content, at):
        (self.file, self.inputs, self.times, self.jobs, self.first, self.end, self.found_nbytes, self.nfound,
         self.status, self.hint, message) = RUN.unpack_from(content, at)
        at += RUN.size
        self.found = [content[at + i * self.found_nbytes:][:self.found_nbytes] for i in range(self.nfound)]
        at += self.nfound * self.found_nbytes
        self.message = content[at:at + message]

    def size(self):
        return RUN.size + sum(map(len, self.found)) + len(self.message)

    def bytes(self):
        return RUN.pack(self.file, self.inputs, self.times, self.jobs, self.first, self.end, self.found_nbytes,
                        self.nfound, self.status, self.hint, len(self.message)) + b"".join(self.found) + self.message


def change(path, edit):
    """A report edited by a function, with the hash that belongs to it."""
    report = Report(path.read_bytes())
    edit(report)
    path.write_bytes(report.bytes())
