"""Writes a Python wheel (PEP 427). The same files give the same bytes, whenever and wherever they are packed."""
import base64
import hashlib
import os
import zipfile

_EPOCH = (1980, 1, 1, 0, 0, 0)  # what a zip file's clock begins with


class Wheel:
    """Files by their path in the wheel, then the folder .dist-info that pip wants."""

    def __init__(self, name, version, tag):
        self.name, self.version, self.tag = name, version, tag
        self.files = {}  # path -> (bytes, executable)

    @property
    def dist_info(self):
        return f"{self.name}-{self.version}.dist-info"

    def add(self, path, data, executable=False):
        if path in self.files:
            raise ValueError(f"{path} is in the wheel already")
        self.files[path] = (data.encode() if isinstance(data, str) else data, executable)

    def add_file(self, path, source, executable=False):
        with open(source, "rb") as file:
            self.add(path, file.read(), executable)

    def describe(self, summary, requires, python, commands):
        """`requires`: as pip wants them; `commands`: name -> "module:function"."""
        lines = ["Metadata-Version: 2.1", f"Name: {self.name.replace('_', '-')}", f"Version: {self.version}",
                 f"Summary: {summary}", f"Requires-Python: {python}"] + [f"Requires-Dist: {one}" for one in requires]
        self.add(f"{self.dist_info}/METADATA", "\n".join(lines) + "\n")
        self.add(f"{self.dist_info}/WHEEL", "Wheel-Version: 1.0\nGenerator: legoai\nRoot-Is-Purelib: false\n"
                 f"Tag: {self.tag}\n")
        self.add(f"{self.dist_info}/entry_points.txt",
                 "[console_scripts]\n" + "".join(f"{name} = {place}\n" for name, place in sorted(commands.items())))

    def write(self, folder):
        """The path of the wheel, written whole or not at all."""
        self.add(f"{self.dist_info}/RECORD", self._record())
        path = os.path.join(folder, f"{self.name}-{self.version}-{self.tag}.whl")
        with zipfile.ZipFile(path + ".part", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name in sorted(self.files, key=lambda name: (name.startswith(self.dist_info), name)):
                data, executable = self.files[name]
                entry = zipfile.ZipInfo(name, _EPOCH)
                entry.external_attr = (0o100755 if executable else 0o100644) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, data)
        os.replace(path + ".part", path)
        return path

    def _record(self):
        rows = []
        for name, (data, _) in sorted(self.files.items()):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={digest},{len(data)}\n")
        return "".join(rows) + f"{self.dist_info}/RECORD,,\n"
