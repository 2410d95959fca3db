"""
Reported failures that a test cannot send as they were.

`NOT_OURS` are those that cannot happen here, and why: at most a tenth of all. `NEAREST` says what
is sent instead, or where the right outcome here is another one.
"""

NOT_OURS: dict[str, str] = {}

NEAREST: dict[str, str] = {
    "S01": "no nginx stands between; the headers are looked at that it goes by",
    "S05": "read by openai-python and by a strict reader, not by the clients in JavaScript",
    "S28": "0.2 s of silence stand for 320 s",
    "S34": "the connection closes as the next request comes, instead of a second before",
    "R44": "a limit of 100 kB and a body of 150 kB",
    "X01": "the pool is full before the first word, or in mid stream",
    "X39": "a window of 16,384, and eleven windows of base64",
    "P12": "the copies come at once instead of 10 s apart",
}
