"""Kill a crawl again and again, run it again, and compare it with the truth and with a crawl that no one killed.

How it flows: `python -m tests.torture N` (`__main__`) goes through rounds until N processes were killed. A round
(`rounds`) is a whole crawl of a small synthetic web in a directory of its own. Its tasks (`tasks`) are the functions
of `crawl_lib.stages`, as Airflow's operators call them, each attempt in a process of its own (`children`). `kills`
chooses how each attempt dies: at a random instant, or right after a named durable step; as a whole, or one process of
it. After every kill the task runs again, now and then in another order, or twice at once, or the run is given up and a
new one begins. When the crawl is done, `checks` compares.

`python -m tests.torture.operators N` is about what operators do (`acts`): commands that forget, drop, repair, move keys
and nodes, damage and old copies, in any order, killed, run again or given up (`operated`).

With `--power` each kill is also a loss of power: what was not durable is undone (`power`). `--plant` puts a known
mistake into the crawler (`plants`): the harness must find it, which `test_planted` shows.

Stage processes are forked from the harness, which has everything imported: an attempt costs milliseconds instead of
half a second. So are their fork servers; in a part of the rounds these are started as always. Nothing else differs from
a task of Airflow. Everything that a web's server does it does in a process that outlives all kills.
"""
