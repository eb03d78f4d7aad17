"""Programs with classes: methods, properties, slots, subclasses of builtins, dataclasses, enums, named tuples."""

from __future__ import annotations

import abc
import enum
import functools
import heapq
import math
import random
from collections import OrderedDict, UserDict, UserList, deque, namedtuple
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from queue import PriorityQueue, Queue
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Stack:
    def __init__(self, limit: int = 10) -> None:
        self._items: list[Any] = []
        self.limit = limit

    def push(self, item: Any) -> None:
        if len(self) >= self.limit:
            raise OverflowError("stack is full")
        self._items.append(item)

    def pop(self) -> Any:
        return self._items.pop()

    @property
    def top(self) -> Any:
        return self._items[-1] if self._items else None

    def __len__(self) -> int:
        return len(self._items)

    def __bool__(self) -> bool:
        return bool(self._items)


def balanced_brackets(text: str) -> bool:
    stack = Stack(100)
    pairs = {")": "(", "]": "[", "}": "{"}
    for char in text:
        if char in pairs.values():
            stack.push(char)
        elif char in pairs:
            if stack.top != pairs[char]:
                return False
            stack.pop()
    return not stack


def stack_overflow(count: int) -> list[Any]:
    stack, said = Stack(3), ""
    try:
        for number in range(count):
            stack.push(number)
    except OverflowError as error:
        said = str(error)
    finally:
        top = stack.top
    return [said, top, len(stack)]


class Node:
    def __init__(self, value: Any, following: Node | None = None) -> None:
        self.value = value
        self.next = following


class LinkedList:
    def __init__(self, items: Iterable[Any] = ()) -> None:
        self.head: Node | None = None
        for item in items:
            self.head = Node(item, self.head)

    def __iter__(self) -> Iterator[Any]:
        node = self.head
        while node is not None:
            yield node.value
            node = node.next

    def reverse(self) -> None:
        before, node = None, self.head
        while node is not None:
            node.next, before, node = before, node, node.next
        self.head = before


def reverse_linked_list(items: Iterable[int]) -> list[int]:
    chain = LinkedList(items)
    first = chain.head
    chain.reverse()
    chain.reverse()
    chain.reverse()
    last = chain.head
    return [*chain, first is last, last.value if last else None]


def has_cycle(size: int) -> list[bool]:
    nodes = [Node(number) for number in range(size)]
    for left, right in zip(nodes, nodes[1:], strict=False):
        left.next = right
    nodes[-1].next = nodes[1]
    slow = fast = nodes[0]
    met = False
    while fast is not None and fast.next is not None:
        slow, fast = slow.next, fast.next.next
        if slow is fast:
            met = True
            break
    return [met, nodes[-1].next is nodes[1]]


class Tree:
    __slots__ = ("left", "right", "value")

    def __init__(self, value: int) -> None:
        self.value = value
        self.left: Tree | None = None
        self.right: Tree | None = None

    def insert(self, value: int) -> None:
        side = "left" if value < self.value else "right"
        child = getattr(self, side)
        if child is None:
            setattr(self, side, Tree(value))
        else:
            child.insert(value)

    def walk(self) -> list[int]:
        before = self.left.walk() if self.left else []
        after = self.right.walk() if self.right else []
        return [*before, self.value, *after]

    @property
    def height(self) -> int:
        return 1 + max((child.height for child in (self.left, self.right) if child), default=0)


def tree_sort(numbers: list[int]) -> list[Any]:
    root = Tree(numbers[0])
    for number in numbers[1:]:
        root.insert(number)
    node, depth = root, 0
    while node.left is not None:
        node = node.left
        depth += 1
    return [root.walk(), root.height, node.value, depth]


class Vertex:
    def __init__(self, name: str) -> None:
        self.name = name
        self.edges: dict[Vertex, int] = {}

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vertex) and other.name == self.name

    def __lt__(self, other: Vertex) -> bool:
        return self.name < other.name


def dijkstra(edges: list[list[Any]], start: str) -> dict[str, float]:
    vertices: dict[str, Vertex] = {}
    for left, right, weight in edges:
        one = vertices.setdefault(left, Vertex(left))
        other = vertices.setdefault(right, Vertex(right))
        one.edges[other] = weight
        other.edges[one] = weight
    distances = dict.fromkeys(vertices.values(), math.inf)
    distances[vertices[start]] = 0
    queue = [(0, vertices[start])]
    while queue:
        distance, vertex = heapq.heappop(queue)
        for neighbour, weight in vertex.edges.items():
            if (longer := distance + weight) < distances[neighbour]:
                distances[neighbour] = longer
                heapq.heappush(queue, (longer, neighbour))
    return {vertex.name: distance for vertex, distance in sorted(distances.items())}


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self) -> float: ...

    def describe(self) -> str:
        return f"{type(self).__name__} of {self.area():.2f}"


class Circle(Shape):
    def __init__(self, radius: float) -> None:
        self.radius = radius

    def area(self) -> float:
        return math.pi * self.radius**2


class Square(Shape):
    def __init__(self, side: float) -> None:
        self.side = side

    def area(self) -> float:
        return self.side**2

    @classmethod
    def unit(cls) -> Square:
        return cls(1)


def areas(sizes: list[float]) -> list[Any]:
    shapes: list[Shape] = []
    for size in sizes:
        shapes.append(Circle(size))
        shapes.append(Square(size))
    shapes.append(Square.unit())
    largest = max(shapes, key=lambda shape: shape.area())
    return [[shape.describe() for shape in shapes], largest is shapes[-3], shapes[-1].area()]


class Account:
    interest = 1

    def __init__(self, owner: str, balance: int = 0) -> None:
        self.owner, self._balance, self.history = owner, balance, []

    @property
    def balance(self) -> int:
        return self._balance

    @balance.setter
    def balance(self, value: int) -> None:
        if value < 0:
            raise Overdrawn(self, -value)
        self.history.append((self._balance, value))
        self._balance = value


class Overdrawn(Exception):
    def __init__(self, account: Account, by: int) -> None:
        super().__init__(f"{account.owner} lacks {by}")
        self.by = by


def transfers(amounts: list[int]) -> list[Any]:
    source, target, failed = Account("ann", 10), Account("bob"), []
    for amount in amounts:
        try:
            source.balance -= amount
        except Overdrawn as error:
            failed.append([str(error), error.by])
        else:
            target.balance += amount
    return [source.balance, target.balance, target.history, failed]


class Matrix:
    def __init__(self, rows: list[list[float]]) -> None:
        self.rows = rows

    def __matmul__(self, other: Matrix) -> Matrix:
        columns = list(zip(*other.rows, strict=True))
        return Matrix(
            [
                [sum(a * b for a, b in zip(row, column, strict=True)) for column in columns]
                for row in self.rows
            ]
        )

    def __getitem__(self, place: tuple[int, int]) -> float:
        return self.rows[place[0]][place[1]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Matrix) and self.rows == other.rows

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Matrix({self.rows})"


def fibonacci_by_matrix(n: int) -> list[Any]:
    result, base = Matrix([[1, 0], [0, 1]]), Matrix([[1, 1], [1, 0]])
    while n:
        if n % 2:
            result = result @ base
        base = base @ base
        n //= 2
    return [result[0, 1], repr(result), result == Matrix([[1, 0], [0, 1]])]


class Countdown:
    def __init__(self, start: int) -> None:
        self.current = start

    def __iter__(self) -> Countdown:
        return self

    def __next__(self) -> int:
        if self.current <= 0:
            raise StopIteration
        self.current -= 1
        return self.current + 1


def countdown(start: int) -> list[Any]:
    found: list[Any] = []
    source = Countdown(start)
    for number in source:
        found.append(number)
        if number == 3:
            break
    for place, number in enumerate(source):
        found.append((place, number))
    for pair in zip(Countdown(2), map(str, Countdown(3)), strict=False):
        found.append(pair)
    return found


class Managed:
    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def __enter__(self) -> Managed:
        self.log.append(f"enter {self.name}")
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
        self.log.append(f"exit {self.name} {kind.__name__ if kind else None}")
        return kind is KeyError


def managed(fails: bool) -> list[str]:
    log: list[str] = []
    with Managed("outer", log) as outer:
        log.append(outer.name)
        with Managed("inner", log):
            if fails:
                raise KeyError("swallowed")
            log.append("not failed")
        log.append("after")
    return log


class Sparse(dict):
    def __missing__(self, key: Any) -> int:
        return 0


class History(list):
    def __init__(self, *items: Any, name: str = "") -> None:
        super().__init__(items)
        self.name = name

    def add(self, item: Any) -> History:
        self.append(item)
        return self


class Celsius(float):
    @property
    def fahrenheit(self) -> float:
        return self * 9 / 5 + 32


class Word(str):
    def shout(self) -> str:
        return self.upper() + "!"


class AttrDict(dict):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__dict__ = self


def subclasses_of_builtins(numbers: list[int]) -> list[Any]:
    sparse, history = Sparse(), History(1, 2, name="h")
    for number in numbers:
        sparse[number] += number
        history.add(sparse[number])
    degrees, word, attributes = Celsius(36.6), Word("hey"), AttrDict(a=1)
    attributes.b = attributes.a + 1
    return [
        sparse,
        sparse["none"],
        list(history),
        history.name,
        type(history).__name__,
        round(degrees.fahrenheit, 2),
        word.shout(),
        attributes["b"],
        isinstance(attributes, AttrDict),
    ]


class LRU(OrderedDict):
    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity

    def get_item(self, key: Any) -> Any:
        self.move_to_end(key)
        return self[key]

    def put(self, key: Any, value: Any) -> None:
        self[key] = value
        self.move_to_end(key)
        if len(self) > self.capacity:
            self.popitem(last=False)


def lru(keys: list[str]) -> list[Any]:
    cache = LRU(2)
    for number, key in enumerate(keys):
        if key in cache:
            cache.get_item(key)
        else:
            cache.put(key, number)
    return [list(cache.items()), cache.capacity]


class Registry(UserDict):
    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key.lower(), value)


def user_collections(words: list[str]) -> list[Any]:
    registry, items = Registry(), UserList([3])
    for number, word in enumerate(words):
        registry[word] = number
        items.append(number)
    items.sort()
    return [dict(registry), list(items), "ABC" in registry, items[0]]


class Colour(enum.Enum):
    RED = 1
    GREEN = 2
    BLUE = 3

    @property
    def next(self) -> Colour:
        members = list(Colour)
        return members[(members.index(self) + 1) % len(members)]


class Rights(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
    RUN = enum.auto()


def enumerations(start: str) -> list[Any]:
    colour, seen = Colour[start], []
    for _ in range(4):
        seen.append(colour.name)
        colour = colour.next
    rights = Rights.READ
    for right in Rights:
        if right is not Rights.WRITE:
            rights |= right
    for each in Colour:
        seen.append(each.value)
    for right in rights:
        seen.append(right.name)
    return [seen, Rights.WRITE in rights, rights.value, Colour(2) is Colour.GREEN]


Point = namedtuple("Point", "x y")


class Person(NamedTuple):
    name: str
    age: int = 30

    def older(self, years: int = 1) -> Person:
        return self._replace(age=self.age + years)


def named_tuples(count: int) -> list[Any]:
    points = [Point(number, number**2) for number in range(count)]
    total = Point(0, 0)
    for x, y in points:
        total = Point(total.x + x, total.y + y)
    person = Person("ann")
    for _ in range(2):
        person = person.older(5)
    return [total, person, person.older() > person, total._asdict()]


@dataclass(order=True)
class Task:
    priority: int
    name: str = field(compare=False)
    done: bool = field(default=False, compare=False)
    parts: list[Task] = field(default_factory=list, compare=False, repr=False)


@dataclass(frozen=True)
class Key:
    name: str
    parts: tuple[int, ...] = ()


def dataclass_heap(names: list[str]) -> list[Any]:
    heap: list[Task] = []
    for number, name in enumerate(names):
        heapq.heappush(heap, Task(-number % 3, name))
    order = []
    seen: set[Key] = set()
    while heap:
        task = heapq.heappop(heap)
        task.done = True
        seen.add(Key(task.name, (task.priority,)))
        order.append(repr(task))
    return [order, Key(names[0], (0,)) in seen, len(seen)]


class Box(Generic[T]):
    def __init__(self, content: T) -> None:
        self.content = content

    def map(self, function: Any) -> Box[Any]:
        return Box(function(self.content))


def generic_boxes(numbers: list[int]) -> list[Any]:
    boxes = [Box[int](number) for number in numbers]
    doubled = []
    for box in boxes:
        doubled.append(box.map(lambda content: content * 2).content)
    return [doubled, isinstance(boxes[0], Box)]


class Versioned:
    def __init__(self, value: int) -> None:
        self.value, self.lock = value, object

    def __getstate__(self) -> dict[str, Any]:
        return {"value": self.value, "version": 1}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["value"])  # type: ignore[misc]


class Fixed:
    """Made again by its own constructor."""

    def __init__(self, *parts: int) -> None:
        self.parts = parts

    def __reduce__(self) -> tuple[Any, ...]:
        return Fixed, self.parts

    def __mul__(self, by: int) -> Fixed:
        return Fixed(*[part * by for part in self.parts])


def copied_by_protocol(value: int) -> list[Any]:
    versioned, fixed = Versioned(value), Fixed(1, 2)
    shared = [versioned, versioned]
    versioned.value += 1
    fixed = fixed * 3
    return [
        versioned.value,
        versioned.lock is object,
        fixed.parts,
        shared[0] is shared[1],
        shared[0] is versioned,
    ]


@functools.total_ordering
class Money:
    __slots__ = ("_amount", "currency")

    def __init__(self, amount: int, currency: str = "EUR") -> None:
        self._amount, self.currency = amount, currency

    def __add__(self, other: Money) -> Money:
        return Money(self._amount + other._amount, self.currency)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and self._amount == other._amount

    def __lt__(self, other: Money) -> bool:
        return self._amount < other._amount

    def __hash__(self) -> int:
        return hash(self._amount)

    def __format__(self, spec: str) -> str:
        return f"{self._amount:{spec}} {self.currency}"


def money(amounts: list[int]) -> list[Any]:
    purse = Money(0)
    seen: dict[Money, int] = {}
    for amount in amounts:
        coin = Money(amount)
        seen[coin] = seen.get(coin, 0) + 1
        purse = purse + coin
    return [f"{purse:>6}", max(seen) >= Money(2), sorted(seen.values()), Money(amounts[0]) in seen]


class Observer:
    def __init__(self) -> None:
        self.listeners: list[Any] = []
        self.seen: list[Any] = []

    def listen(self, function: Any) -> None:
        self.listeners.append(function)

    def notify(self, event: str) -> None:
        for listener in self.listeners:
            listener(event)

    def remember(self, event: str) -> None:
        self.seen.append(event)


def observers(events: list[str]) -> list[Any]:
    subject, lengths = Observer(), []
    subject.listen(subject.remember)
    subject.listen(lambda event: lengths.append(len(event)))
    for event in events:
        subject.notify(event)
    return [subject.seen, lengths]


def queues(numbers: list[int]) -> list[Any]:
    waiting: Queue[int] = Queue()
    urgent: PriorityQueue[int] = PriorityQueue()
    recent: deque[int] = deque(maxlen=2)
    for number in numbers:
        waiting.put(number)
        urgent.put(-number)
        recent.append(number)
    found = []
    while not waiting.empty():
        found.append((waiting.get(), urgent.get()))
    for item in recent:
        found.append(item)
    return found


def seeded(seed: int) -> list[int]:
    generator = random.Random(seed)
    found = []
    for _ in range(5):
        found.append(generator.randint(1, 100))
    shuffled = list(range(5))
    generator.shuffle(shuffled)
    return found + shuffled


PROGRAMS: dict[Any, list[tuple[Any, ...]]] = {
    balanced_brackets: [("([]{})",), ("([)]",)],
    stack_overflow: [(5,), (2,)],
    reverse_linked_list: [([1, 2, 3],)],
    has_cycle: [(4,)],
    tree_sort: [([5, 2, 8, 1, 9],)],
    dijkstra: [([["a", "b", 7], ["b", "c", 1], ["a", "c", 3]], "a")],
    areas: [([1, 2.5],)],
    transfers: [([3, 9, 4],)],
    fibonacci_by_matrix: [(10,)],
    countdown: [(5,)],
    managed: [(True,), (False,)],
    subclasses_of_builtins: [([1, 2, 1],)],
    lru: [(["a", "b", "a", "c"],)],
    user_collections: [(["Abc", "D"],)],
    enumerations: [("GREEN",)],
    named_tuples: [(4,)],
    dataclass_heap: [(["a", "b", "c", "d"],)],
    generic_boxes: [([1, 2],)],
    copied_by_protocol: [(4,)],
    money: [([5, 1, 5],)],
    observers: [(["one", "three"],)],
    queues: [([3, 1, 2],)],
    seeded: [(42,)],
}
