"""What programs do with py-consul, against the port given."""
import sys
import threading

import consul

c = consul.Consul(host="127.0.0.1", port=int(sys.argv[1]))


def eventually(what, ok):
    for _ in range(600):
        if ok():
            return
        threading.Event().wait(0.05)
    raise AssertionError(what)


# Keys, and waiting for them.
assert c.kv.put("py/a", "one", flags=7) is True
index, entry = c.kv.get("py/a")
assert entry["Value"] == b"one" and entry["Flags"] == 7, entry
assert c.kv.put("py/a", "two", cas=entry["ModifyIndex"]) is True
assert c.kv.put("py/a", "three", cas=entry["ModifyIndex"]) is False
index, entry = c.kv.get("py/a")
waited = []
waiter = threading.Thread(target=lambda: waited.append(consul.Consul(host="127.0.0.1", port=int(sys.argv[1])).kv.get("py/a", index=index, wait="30s")))
waiter.start()
c.kv.put("py/a", "four")
waiter.join(60)
assert waited and waited[0][1]["Value"] == b"four", waited
assert c.kv.get("py/none")[1] is None
c.kv.put("py/b/c", "")
assert c.kv.get("py/", keys=True, separator="/")[1] == ["py/a", "py/b/"]
assert len(c.kv.get("py/", recurse=True)[1]) == 2

# Sessions and locks.
session = c.session.create(name="py", ttl=10, lock_delay=0, behavior="release")
assert c.session.renew(session)["ID"] == session
assert c.kv.put("py/lock", "mine", acquire=session) is True
other = c.session.create(lock_delay=0)
assert c.kv.put("py/lock", "theirs", acquire=other) is False
assert c.kv.get("py/lock")[1]["Session"] == session
assert c.session.destroy(session) is True
assert c.session.info(session)[1] is None
eventually("the lock is free", lambda: c.kv.put("py/lock", "theirs", acquire=other))
try:
    c.session.renew(session)
    raise AssertionError("renewed after its end")
except consul.NotFound:
    pass
assert c.session.destroy(other) is True

# The agent's services and checks, and what health says of them.
assert c.agent.service.register("py", service_id="py1", port=80, tags=["x"], check=consul.Check.ttl("60s"))
assert c.agent.check.ttl_pass("service:py1", notes="well")
eventually("it passes", lambda: len(c.health.service("py", passing=True)[1]) == 1)
assert c.health.service("py")[1][0]["Service"]["Tags"] == ["x"]
assert "py1" in c.agent.services() and "service:py1" in c.agent.checks()
assert c.agent.check.ttl_fail("service:py1")
eventually("it does not pass", lambda: c.health.service("py", passing=True)[1] == [])
assert c.agent.service.maintenance("py1", "true", "tea")
assert c.agent.service.maintenance("py1", "false")
assert c.agent.service.deregister("py1")
eventually("it is gone", lambda: c.catalog.service("py")[1] == [])

# The catalog, by hand.
assert c.catalog.register("py-node", "127.0.0.2", service={"Service": "py-db", "Port": 5432}) is True
assert [n["Node"] for n in c.catalog.service("py-db")[1]] == ["py-node"]
assert c.catalog.node("py-node")[1]["Services"]["py-db"]["Port"] == 5432
assert "py-db" in c.catalog.services()[1]
assert c.health.state("any")[1]
assert c.catalog.deregister("py-node") is True
assert c.catalog.node("py-node")[1] is None
assert c.catalog.datacenters() == ["dc1"]

# Transactions and status.
done = c.txn.put([{"KV": {"Verb": "set", "Key": "py/t", "Value": "b25l"}}, {"KV": {"Verb": "get", "Key": "py/t"}}])
assert done["Errors"] is None and len(done["Results"]) == 2, done
assert c.status.leader() and c.status.peers()
assert c.agent.self()["Config"]["Datacenter"] == "dc1"
assert c.agent.members()
assert c.event.fire("py", "body")["Name"] == "py"
assert c.kv.delete("py/", recurse=True)
