"""Follows a database with Python's ovs.db.idl, and changes it."""
import sys
import uuid

import ovs.db.idl
import ovs.poller

remote, schema = sys.argv[1:]
helper = ovs.db.idl.SchemaHelper(schema)
helper.register_columns("Address_Set", ["name", "external_ids"])
idl = ovs.db.idl.Idl(remote, helper)
# Conditions, and the id of the last transaction, are of monitor_cond_since alone: a client that
# was refused something falls back to less.
idl.cond_change("Address_Set", [["name", "==", "a"]])


def until(done):
    while not done():
        seqno = idl.change_seqno
        idl.run()
        if seqno != idl.change_seqno or done():
            continue
        poller = ovs.poller.Poller()
        idl.wait(poller)
        poller.block()


def commit(fill):
    txn = ovs.db.idl.Transaction(idl)
    fill(txn)
    status = txn.commit_block()
    if status not in (ovs.db.idl.Transaction.SUCCESS, ovs.db.idl.Transaction.UNCHANGED):
        sys.exit(f"{status}: {txn.get_error()}")


def rows():
    return list(idl.tables["Address_Set"].rows.values())


until(lambda: idl.has_ever_connected())


def add(txn):
    row = txn.insert(idl.tables["Address_Set"])
    row.name = "a"
    row.external_ids = {"n": "1"}
    txn.insert(idl.tables["Address_Set"]).name = "outside"


commit(add)
print("added")
until(lambda: len(rows()) == 1)
print("resumable", idl.last_id != str(uuid.UUID(int=0)))
print("seen", rows()[0].name, rows()[0].external_ids["n"])
commit(lambda txn: rows()[0].setkey("external_ids", "n", "2"))
until(lambda: rows()[0].external_ids["n"] == "2")
print("changed", rows()[0].external_ids["n"])
commit(lambda txn: rows()[0].delete())
until(lambda: not rows())
print("deleted")
