"""A login of before there were events: the change is made, and the server's log names the event
that is lost.
"""

from parsync_redis.model.ids import new_id
from parsync_redis.model.task import Submission
from parsync_redis.security.acl import user_line
from parsync_redis.security.acl_tables import Role
from parsync_redis.store import Store
from tests.kit.logins import CLUSTER, Guarded, rules


def test_an_event_that_a_login_may_not_write_stops_nothing_and_is_in_the_log(
    guarded: Guarded,
) -> None:
    _, *words = rules(user_line(Role.CLIENT, CLUSTER, ""))
    words = [word.replace(" +xadd", "") for word in words if word != "off"]
    guarded.admin.execute_command("ACL", "SETUSER", f"{CLUSTER}-old", "on", ">pw-old", *words)
    scheduler = Store.from_url(guarded.url(Role.SCHEDULER), CLUSTER)
    store = Store.from_url(guarded.url("old"), CLUSTER)
    id = new_id()
    try:
        scheduler.load_scripts()
        assert store.run(store.commands.submit([Submission(id, "work", b"{}")])) == ["submitted"]
        assert store.run(store.commands.cancel([id], "not needed", "SIGTERM")) == [
            ("cancelled", "")
        ]
        assert store.states([id]) == ["cancelled"]
    finally:
        store.client.close()
        scheduler.client.close()
    assert "parsync: event cancelled is lost" in (guarded.server.folder / "server.log").read_text()
