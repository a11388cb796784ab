#!/usr/bin/env python3
"""Launches one kernel as a recorded program did, and compares what it writes.

The text file (launch.txt) describes the launch: image, kernel, grid, parameters, and the memory
that the kernel can reach, before and after. It can be edited. Memory is placed at its recorded
addresses, because parameters and memory hold pointers. Nothing but Python and the CUDA driver
(libcuda.so.1) is needed.

The exit status is 0 if all memory is as recorded, 1 if not, 2 if the launch cannot be made here.
"""

import argparse
import ctypes
import os
import statistics
import struct
import sys

SLOT, GRANULE = 32 << 20, 2 << 20
ATTEMPTS, ATTEMPT = 8, "CUTAPE_LAUNCH_ATTEMPT"
NO_RANDOMIZE = 0x0040000
RUNS, MOST_FILLERS = 3, 4096
libc = ctypes.CDLL(None, use_errno=True)
u32, u64, pointer = ctypes.c_uint, ctypes.c_uint64, ctypes.c_void_p


def cannot(why):
    """Ends with status 2: the launch cannot be made here."""
    print(f"result   refused: {why}", flush=True)
    sys.exit(2)


class Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = [("id", u32), ("padding", u32), ("value", ctypes.c_ubyte * 64)]


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [("grid", u32 * 3), ("block", u32 * 3), ("shared", u32), ("stream", pointer),
                ("attributes", ctypes.POINTER(Attribute)), ("count", u32)]


class MemoryProperties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = [("type", u32), ("handle_types", u32), ("location", u32), ("id", u32),
                ("metadata", pointer), ("flags", u64)]


class MemoryAccess(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("location", u32), ("id", u32), ("access", u32)]


class ArrayShape(ctypes.Structure):
    """CUDA_ARRAY3D_DESCRIPTOR."""

    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t),
                ("depth", ctypes.c_size_t), ("format", u32), ("channels", u32), ("flags", u32)]

    def extent(self, level):
        """Elements of a row, rows and planes of a level."""
        # Layers and faces of a cube are as many in all levels.
        planes = self.depth if self.flags & 5 else self.depth >> level
        return max(1, self.width >> level), max(1, self.height >> level), max(1, planes)


class CopySide(ctypes.Structure):
    """One side of a CUDA_MEMCPY3D."""

    _fields_ = [("place", ctypes.c_size_t * 4), ("type", u32), ("host", pointer), ("device", u64),
                ("array", pointer), ("reserved", pointer), ("pitch", ctypes.c_size_t),
                ("height", ctypes.c_size_t)]


class Copy(ctypes.Structure):
    """CUDA_MEMCPY3D."""

    _fields_ = [("source", CopySide), ("target", CopySide), ("extent", ctypes.c_size_t * 3)]


class Driver:
    """Functions of the driver; a result other than success ends the program."""

    def __init__(self, path):
        try:
            self.library = ctypes.CDLL(path)
        except OSError as error:
            cannot(error)

    def ask(self, name, *arguments):
        """Calls a function, and returns its result."""
        try:
            function = getattr(self.library, name)
        except AttributeError:
            cannot(f"the driver has no {name}")
        return function(*arguments)

    def call(self, name, *arguments):
        """Calls a function that must succeed."""
        code = self.ask(name, *arguments)
        if code:
            cannot(f"{name} returned {self.name_of(code)}")

    def get(self, kind, name, *arguments):
        """Calls a function that writes a value behind its first parameter."""
        value = kind()
        self.call(name, ctypes.byref(value), *arguments)
        return value.value

    def name_of(self, code):
        """The name of a result."""
        name = ctypes.c_char_p()
        self.library.cuGetErrorName(code, ctypes.byref(name))
        return name.value.decode() if name.value else f"result {code}"


class Memory:
    """Memory at a fixed address, a variable of a module, or an array."""

    def __init__(self, word, text, module):
        numbers = text.split(maxsplit=1)
        self.variable, self.module, self.shape, self.levels, self.array = None, module, None, 0, 0
        if word.endswith("variable"):
            self.address, self.length, self.variable = 0, int(numbers[0], 0), numbers[1]
        elif word == "array":
            self.address = 0
            self.length, *shape, self.levels = [int(number, 0) for number in text.split()]
            self.shape = ArrayShape(*shape)
        else:
            address, length = text.split()[:2]
            self.address, self.length = int(address, 0), int(length, 0)
        self.is_host, self.is_as_loaded = word == "host-memory", word == "loaded-variable"
        self.pieces, self.addresses = [], []
        self.before = self.expected = self.first = b""

    def around(self, unit):
        """The units that it lies in."""
        end = self.address + self.length + unit - 1
        return self.address // unit * unit, end // unit * unit

    def read_contents(self, file):
        """Reads what it holds before and after."""
        contents = bytearray(self.length)
        for is_after in (False, True):
            for word, at, length, place in self.pieces:
                if word.startswith("after") != is_after:
                    continue
                if word == "after-zero":
                    contents[at:at + length] = bytes(length)
                    continue
                file.seek(place)
                piece = file.read(length)
                if len(piece) != length or at + length > self.length:
                    cannot("the file of contents is too short")
                contents[at:at + length] = piece
            if not is_after:
                self.before = bytes(contents)
        self.expected = bytes(contents)


class Texture:
    """A texture or surface object that a parameter names."""

    def __init__(self, word, text):
        self.is_surface = word == "surface"
        self.offset, self.handle = [int(number, 0) for number in text.split()]
        self.array = self.view = None
        self.resource = self.sampler = b""

    def line(self, word, text):
        """Adds a line about it."""
        if word == "of-array":
            self.array = int(text, 0)
        else:
            lengths = {"resource": 144, "sampler": 104, "view": 112}
            setattr(self, word, bytes.fromhex(text).ljust(lengths[word], b"\0"))


class Launch:
    """What the text file says."""

    def __init__(self, path):
        self.path, self.folder = path, os.path.dirname(path) or "."
        self.texts, self.memory, self.attributes, self.offsets = {}, [], [], []
        self.modules, self.textures = [], []
        self.limits, self.settings, self.relocations = [], [], []
        self.parameters = b""
        try:
            with open(path, encoding="utf-8") as file:
                for line in file:
                    word, _, text = line.rstrip("\n").partition(" ")
                    self.line(word, text.strip())
        except (OSError, ValueError, IndexError) as error:
            cannot(f"{path}: {error}")
        if not {"kernel", "image", "grid", "block"} <= self.texts.keys():
            cannot(f"{path} names no kernel, image, grid or block")

    def line(self, word, text):
        """Adds a line."""
        if word in ("memory", "host-memory", "variable", "loaded-variable", "array"):
            self.memory.append(Memory(word, text, len(self.modules)))
        elif word in ("before-address", "after-address"):
            numbers = [int(number, 0) for number in text.split()]
            self.memory[-1].addresses.append((word[0] == "a", *numbers))
        elif word in ("texture", "surface"):
            self.textures.append(Texture(word, text))
        elif word in ("of-array", "resource", "sampler", "view"):
            self.textures[-1].line(word, text)
        elif word == "module":
            self.modules.append(os.path.join(self.folder, text))
        elif word in ("before", "after", "after-zero"):
            numbers = [int(number, 0) for number in text.split()]
            self.memory[-1].pieces.append((word, *numbers, *[0] * (3 - len(numbers))))
        elif word == "attribute":
            number, value = text.split()
            self.attributes.append((int(number), bytes.fromhex(value)))
        elif word == "parameters":
            self.parameters = bytes.fromhex(text.partition(" ")[2])
        elif word == "parameter":
            self.offsets.append(int(text.split()[0]))
        elif word in ("limit", "function-attribute", "relocate"):
            known = {"limit": self.limits, "relocate": self.relocations}
            numbers = [int(number, 0) for number in text.split()]
            known.get(word, self.settings).append(numbers)
        elif word and word[0] != "#":
            self.texts[word] = text

    def three(self, word):
        """Three numbers of a line."""
        return [int(number, 0) for number in self.texts[word].split()[:3]]

    def beside(self, word):
        """A file that the text names, relative to the text."""
        return os.path.join(self.folder, self.texts[word])

    def read_contents(self):
        """Reads what memory holds before and after."""
        try:
            with open(self.beside("contents") if "contents" in self.texts else os.devnull,
                      "rb") as file:
                for memory in self.memory:
                    memory.read_contents(file)
        except OSError as error:
            cannot(error)


def restart(address=0):
    """Starts again: other addresses of this process's own memory may leave the recorded ones free.

    First without randomisation, then with a new one.
    """
    attempt = int(os.environ.get(ATTEMPT, "0"))
    if attempt > ATTEMPTS:
        cannot(f"address {address:#x} is not free in this process, in {ATTEMPTS} attempts")
    os.environ[ATTEMPT] = str(attempt + 1)
    persona = libc.personality(ctypes.c_ulong(0xFFFFFFFF)) & ~NO_RANDOMIZE
    libc.personality(ctypes.c_ulong(persona | (NO_RANDOMIZE if attempt == 0 else 0)))
    os.execv(sys.executable, [sys.executable, *sys.argv])


def joined(ranges):
    """Ranges without overlaps."""
    result = []
    for start, end in sorted(ranges):
        if result and start <= result[-1][1]:
            result[-1][1] = max(result[-1][1], end)
        else:
            result.append([start, end])
    return result


class Program:
    """The launch in this process."""

    def __init__(self, launch, driver, device):
        self.launch, self.driver = launch, driver
        driver.call("cuInit", 0)
        self.device = driver.get(ctypes.c_int, "cuDeviceGet", device)
        context = driver.get(pointer, "cuDevicePrimaryCtxRetain", self.device)
        driver.call("cuCtxSetCurrent", pointer(context))
        self.place_memory()
        self.tell()
        launch.read_contents()
        for number, value in launch.limits:
            now = ctypes.c_size_t()
            if not driver.ask("cuCtxGetLimit", ctypes.byref(now), number) and now.value != value:
                driver.call("cuCtxSetLimit", number, ctypes.c_size_t(value))
        paths = [launch.beside("image"), *launch.modules]
        self.modules = [self.load_module(path) for path in paths]
        self.module = self.modules[0]
        name = launch.texts["kernel"].encode()
        self.function = pointer(driver.get(pointer, "cuModuleGetFunction", self.module, name))
        for number, value in launch.settings:
            now = ctypes.c_int()
            refused = driver.ask("cuFuncGetAttribute", ctypes.byref(now), number, self.function)
            if not refused and now.value != value:
                driver.call("cuFuncSetAttribute", self.function, number, value)
        parameters = bytearray(launch.parameters)
        self.find_variables(parameters)
        self.create_textures(parameters)
        # A tensor map lies at a multiple of 64.
        self.buffer = ctypes.create_string_buffer(len(parameters) + 128)
        self.parameters = -ctypes.addressof(self.buffer) % 64 + ctypes.addressof(self.buffer)
        ctypes.memmove(self.parameters, bytes(parameters), len(parameters))
        self.stream = pointer(driver.get(pointer, "cuStreamCreate", 1))

    def tell(self):
        """Prints what is launched, and where."""
        name, driver = ctypes.create_string_buffer(256), self.driver
        driver.call("cuDeviceGetName", name, 255, self.device)
        capability = [driver.get(ctypes.c_int, "cuDeviceGetAttribute", number, self.device)
                      for number in (75, 76)]
        version = driver.get(ctypes.c_int, "cuDriverGetVersion")
        here = f"{capability[0]} {capability[1]} {name.value.decode()}"
        print("kernel  ", self.launch.texts["kernel"])
        if "source" in self.launch.texts:
            print("from    ", self.launch.texts["source"])
        print(f"device   {name.value.decode()}, compute capability {capability[0]}."
              f"{capability[1]}, driver {version // 1000}.{version // 10 % 100}")
        recorded = self.launch.texts.get("device", here)
        if recorded != here:
            print(f"recorded {recorded}: results may differ")
        total = sum(memory.length for memory in self.launch.memory)
        print(f"memory   {total} bytes in {len(self.launch.memory)} ranges")

    def reserve(self, start, length):
        """Reserves addresses; false if they are not free."""
        address = u64()
        if self.driver.ask("cuMemAddressReserve", ctypes.byref(address), ctypes.c_size_t(length),
                           ctypes.c_size_t(0), u64(start), u64(0)):
            return False
        if address.value == start:
            return True
        self.driver.ask("cuMemAddressFree", address, ctypes.c_size_t(length))
        return False

    def map_host(self, memory):
        """Page-locked pages of this process at a fixed address."""
        start, end = memory.around(4096)
        libc.mmap.restype = pointer
        flags = 0x100022  # private, anonymous, there and nowhere else
        mapped = libc.mmap(pointer(start), ctypes.c_size_t(end - start), 3, flags, -1,
                           ctypes.c_long(0))
        seen = u64()
        return (mapped == start and
                not self.driver.ask("cuMemHostRegister_v2", pointer(start),
                                    ctypes.c_size_t(end - start), 3) and
                not self.driver.ask("cuMemHostGetDevicePointer_v2", ctypes.byref(seen),
                                    pointer(start), 0) and seen.value == start)

    def place_memory(self):
        """Puts memory at its recorded addresses.

        Reservations of 32 MiB are honoured where they are free, filled in units of 2 MiB. Host
        memory that is not among device memory may lie where nothing can be reserved: there it is
        pages of this process.
        """
        memory = [memory for memory in self.launch.memory
                  if not memory.variable and not memory.shape]
        slots = joined(known.around(SLOT) for known in memory if not known.is_host)
        units = [known.around(GRANULE) for known in memory if not known.is_host]
        for start, end in slots:
            if not self.reserve(start, end - start):
                for slot in range(start, end, SLOT):
                    if not self.reserve(slot, SLOT):
                        restart(slot)
        for known in (known for known in memory if known.is_host):
            start, end = known.around(SLOT)
            if not any(low <= start and end <= high for low, high in slots):
                if not self.reserve(start, end - start):
                    if not self.map_host(known):
                        restart(known.address)
                    continue
                slots.append([start, end])
            units.append(known.around(GRANULE))
        for start, end in joined(units):
            while start < end:
                # A mapping lies in one reservation, which may be of one slot.
                behind = min(end, (start // SLOT + 1) * SLOT)
                self.map_device(start, behind - start)
                start = behind

    def map_device(self, start, length):
        """Maps device memory into a reservation."""
        length, handle = ctypes.c_size_t(length), u64()
        # Pinned memory, on this device.
        properties = MemoryProperties(type=1, location=1, id=self.device)
        self.driver.call("cuMemCreate", ctypes.byref(handle), length, ctypes.byref(properties),
                         u64(0))
        self.driver.call("cuMemMap", u64(start), length, ctypes.c_size_t(0), handle, u64(0))
        access = MemoryAccess(1, self.device, 3)
        self.driver.call("cuMemSetAccess", u64(start), length, ctypes.byref(access),
                         ctypes.c_size_t(1))

    def load_module(self, path):
        """Loads an image."""
        try:
            with open(path, "rb") as file:
                # PTX ends with a NUL.
                image = ctypes.create_string_buffer(file.read() + bytes(64))
        except OSError as error:
            cannot(error)
        return pointer(self.driver.get(pointer, "cuModuleLoadData", image))

    def find_variables(self, parameters):
        """Finds the variables of modules, and puts their addresses into parameters and contents."""
        variables = [memory for memory in self.launch.memory if memory.variable]
        for memory in variables:
            address, size = u64(), ctypes.c_size_t()
            self.driver.call("cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size),
                             self.modules[memory.module], memory.variable.encode())
            if size.value != memory.length:
                cannot(f"variable {memory.variable} has another size")
            memory.address = address.value
        address_of = lambda number, addend: struct.pack(
            "<Q", self.launch.memory[number].address + addend)
        for memory in self.launch.memory:
            contents = [bytearray(memory.before), bytearray(memory.expected)]
            for is_after, offset, number, addend in memory.addresses:
                contents[is_after][offset:offset + 8] = address_of(number, addend)
            if memory.addresses:
                memory.before, memory.expected = (bytes(one) for one in contents)
        for memory in variables:
            if memory.is_as_loaded:
                # What an unchanged variable holds may depend on addresses of this process.
                now = self.read(memory)
                pairs = zip(memory.before, memory.expected, now)
                memory.expected = bytes(here if before == after else after
                                        for before, after, here in pairs)
                memory.before = now
        for offset, number, addend in self.launch.relocations:
            parameters[offset:offset + 8] = address_of(number, addend)

    def create_textures(self, parameters):
        """Creates arrays, and texture and surface objects.

        They get their recorded handles if the driver counts up: a parameter that equals a handle
        may be a number. Otherwise the parameter gets the new handle.
        """
        for memory in (memory for memory in self.launch.memory if memory.shape):
            shape = ctypes.byref(memory.shape)
            if memory.levels:
                memory.array = self.driver.get(pointer, "cuMipmappedArrayCreate", shape,
                                               memory.levels)
            else:
                memory.array = self.driver.get(pointer, "cuArray3DCreate_v2", shape)
        created, named = {}, {}
        for texture in sorted(self.launch.textures, key=lambda texture: texture.handle):
            key = texture.handle, texture.is_surface
            if key not in created:
                last, handle = 0, self.create_texture(texture)
                for _ in range(MOST_FILLERS):
                    if not last < handle < texture.handle:
                        break
                    last, handle = handle, self.create_texture(texture)
                created[key] = handle
            if named.setdefault(texture.offset, created[key]) != created[key]:
                cannot(f"parameter at {texture.offset} equals a texture and a surface object")
            parameters[texture.offset:texture.offset + 8] = struct.pack("<Q", created[key])

    def create_texture(self, texture):
        """Creates a texture or surface object."""
        resource = bytearray(texture.resource)
        if texture.array is not None:
            resource[8:16] = struct.pack("<Q", self.launch.memory[texture.array].array)
        if texture.is_surface:
            return self.driver.get(u64, "cuSurfObjectCreate", bytes(resource))
        return self.driver.get(u64, "cuTexObjectCreate", bytes(resource), texture.sampler,
                               texture.view)

    def copy_array(self, memory, contents, is_read):
        """Copies the contents of an array: its levels, rows without gaps."""
        extents = [memory.shape.extent(level) for level in range(max(1, memory.levels))]
        element = memory.length // sum(width * rows * planes for width, rows, planes in extents)
        place = ctypes.addressof(contents)
        for level, (width, rows, planes) in enumerate(extents):
            array = memory.array
            if memory.levels:
                array = self.driver.get(pointer, "cuMipmappedArrayGetLevel", pointer(array), level)
            row = width * element
            host = CopySide(type=1, host=place, pitch=row, height=rows)
            sides = [host, CopySide(type=3, array=array)]
            copy = Copy(*reversed(sides) if is_read else sides,
                        (ctypes.c_size_t * 3)(row, rows, planes))
            self.driver.call("cuMemcpy3D_v2", ctypes.byref(copy))
            place += row * rows * planes

    def read(self, memory):
        """What memory holds now."""
        now = ctypes.create_string_buffer(memory.length)
        if memory.shape:
            self.copy_array(memory, now, True)
            return now.raw
        self.driver.call("cuMemcpyDtoH_v2", now, u64(memory.address),
                         ctypes.c_size_t(memory.length))
        return now.raw

    def restore(self, only_changed=False):
        """Puts all memory into the state before the launch, or only what the launch changes."""
        for memory in self.launch.memory:
            if only_changed and memory.before == memory.expected:
                continue
            if memory.shape:
                contents = ctypes.create_string_buffer(memory.before, memory.length)
                self.copy_array(memory, contents, False)
            else:
                self.driver.call("cuMemcpyHtoD_v2", u64(memory.address), memory.before,
                                 ctypes.c_size_t(memory.length))
        self.driver.call("cuCtxSynchronize")

    def issue(self):
        """Launches the kernel."""
        launch, base = self.launch, self.parameters
        size = ctypes.c_size_t(len(launch.parameters))
        pointers, extra = None, None
        if launch.offsets:
            pointers = (pointer * len(launch.offsets))(*[base + at for at in launch.offsets])
        elif launch.parameters:
            # Without the places of the parameters they are given in one piece.
            extra = (pointer * 5)(1, base, 2, ctypes.addressof(size), None)
        grid, block = launch.three("grid"), launch.three("block")
        shared = int(launch.texts.get("shared", "0"), 0)
        if not launch.attributes:
            return self.driver.ask("cuLaunchKernel", self.function, *grid, *block, shared,
                                   self.stream, pointers, extra)
        attributes = (Attribute * len(launch.attributes))()
        for attribute, (number, value) in zip(attributes, launch.attributes):
            attribute.id = number
            attribute.value[:len(value)] = value
        config = Config((u32 * 3)(*grid), (u32 * 3)(*block), shared, self.stream, attributes,
                        len(attributes))
        return self.driver.ask("cuLaunchKernelEx", ctypes.byref(config), self.function, pointers,
                               extra)

    def time(self, repeat):
        """Times launches from the same memory."""
        begin = pointer(self.driver.get(pointer, "cuEventCreate", 0))
        end = pointer(self.driver.get(pointer, "cuEventCreate", 0))
        times = []
        for _ in range(repeat):
            self.restore(only_changed=True)
            self.driver.call("cuEventRecord", begin, self.stream)
            self.issue()
            self.driver.call("cuEventRecord", end, self.stream)
            self.driver.call("cuEventSynchronize", end)
            milliseconds = self.driver.get(ctypes.c_float, "cuEventElapsedTime", begin, end)
            times.append(1e3 * milliseconds)
        if times:
            print(f"time     {statistics.median(times):.2f} us (median of {repeat}; "
                  f"{min(times):.2f} to {max(times):.2f})")

    def compare(self, is_told):
        """How many bytes differ from the recording, and what memory holds."""
        now = [self.read(memory) for memory in self.launch.memory]
        total, ranges, first = 0, 0, ""
        for memory, here in zip(self.launch.memory, now):
            if here == memory.expected:
                continue
            pairs = enumerate(zip(memory.expected, here))
            places = [at for at, (expected, received) in pairs if expected != received]
            total, ranges = total + len(places), ranges + 1
            at = places[0]
            first = first or (f"the first at {memory.address + at:#x}: expected "
                              f"{memory.expected[at]:02x}, received {here[at]:02x}")
        if total and is_told:
            print(f"differs  {total} bytes in {ranges} of {len(now)} ranges; {first}")
        return total, now

    def is_within(self, kind, tolerance, now):
        """Whether all numbers that differ agree within the tolerance."""
        size = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}[kind]

        def value(raw):
            if kind == "bf16":
                return struct.unpack("<f", b"\0\0" + raw)[0]
            return struct.unpack({"f16": "<e", "f32": "<f", "f64": "<d"}[kind], raw)[0]

        def agree(one, other):
            if one == other or (one != one and other != other):
                return True
            scale = max(1, abs(one), abs(other))
            return abs(one - other) <= tolerance * scale and scale < float("inf")

        for memory, here in zip(self.launch.memory, now):
            if here == memory.expected:
                continue
            whole = memory.length // size * size
            if here[whole:] != memory.expected[whole:]:
                return False
            for at in range(0, whole, size):
                pair = memory.expected[at:at + size], here[at:at + size]
                if pair[0] != pair[1] and not agree(value(pair[0]), value(pair[1])):
                    return False
        return True

    def run(self, repeat, tolerance):
        """Launches and compares; the exit status."""
        first = None
        for attempt in range(RUNS):
            self.restore()
            code = self.issue() or self.driver.ask("cuCtxSynchronize")
            if code:
                print("result   failed: the launch returned", self.driver.name_of(code))
                return 1
            differing, now = self.compare(attempt == 0)
            if not differing and attempt == 0:
                self.time(repeat)
                print("result   same")
                return 0
            if tolerance and self.is_within(*tolerance, now):
                print(f"result   same within {tolerance[0]}={tolerance[1]:g}")
                return 0
            if first is not None and now != first:
                print("result   nondeterministic: two launches from the same memory differ")
                return 1
            first = now
        print("result   different")
        return 1


def tolerance_of(text):
    """Parses f32=1e-5."""
    kind, _, value = text.partition("=")
    if kind not in ("f16", "bf16", "f32", "f64"):
        raise ValueError
    return kind, float(value)


def main():
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("launch", nargs="?", default=os.path.join(here, "launch.txt"))
    parser.add_argument("--driver", default="libcuda.so.1", help="load this driver")
    parser.add_argument("--device", type=int, default=0, help="use this device")
    parser.add_argument("--repeat", type=int, default=10, help="time that many launches")
    parser.add_argument("--tolerance", type=tolerance_of, metavar="TYPE=X",
                        help="if bits differ, compare as numbers of type f16, bf16, f32 or f64")
    options = parser.parse_args()
    if ATTEMPT not in os.environ:
        restart()
    program = Program(Launch(options.launch), Driver(options.driver), options.device)
    return program.run(options.repeat, options.tolerance)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    sys.exit(main())
