"""What the wheel of Krake has besides the packages of `crawl_lib`: what joins it to Airflow, DAGs, queries, config.

Their places in the project are not those in a package, so they are copied while a wheel is built; an editable
installation needs none of it. The wheel also has the compiled scanner of links, so it is for one kind of machine.
"""

import shutil

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

TREES = {
    "plugins/krake_airflow": "krake_airflow",
    "dags": "krake_airflow/dags",
    "config": "krake_airflow/config",
    "sql": "crawl_lib/sql",
    "crawl_lib/parse/native": "crawl_lib/parse/native",
    "crawl_lib/serve/templates": "crawl_lib/serve/templates",
}

FILES = {"config/opensearch-mapping.json": "crawl_lib/opensearch-mapping.json"}


class BuildPy(build_py):
    """Copies `TREES` and `FILES`; packages among the trees get the files without modules."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for source, target in TREES.items():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(
                    source, f"{self.build_lib}/{target}", ignore=ignored, dirs_exist_ok=True
                )
            for source, target in FILES.items():
                shutil.copyfile(source, f"{self.build_lib}/{target}")


class BdistWheel(bdist_wheel):
    """A wheel with compiled code."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False


setup(cmdclass={"build_py": BuildPy, "bdist_wheel": BdistWheel})
