from tests.incidents.story import KINDS, stories
from tests.incidents.play import play
for kind in KINDS:
    told = stories(kind)
    if told:
        for name, p in play(told).items():
            print(name, dict(p.states))
            for f in p.fired: print("   ", f.alert, f.severity, f.start, f.end)
