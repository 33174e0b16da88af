"""An S3 server of the tests' own, over HTTP, that knows one user and keeps everything in memory."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple
from uuid import uuid4

import boto3
from botocore.config import Config

from dagster_airbyte_proto.loads.storage import Storage

_EVERYTHING = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}'
_CALLS_TO_MAKE_THE_USER = 3
_STARTS_WITHIN_SECONDS = 60


class ObjectStore(NamedTuple):
    """A running store: its address, and the credentials that it accepts."""

    endpoint: str
    access_key: str
    secret_key: str
    user: str = "tester"

    def new_bucket(self) -> str:
        name = f"b{uuid4().hex}"
        self.client("s3").create_bucket(Bucket=name)
        return name

    def new_user(self) -> "ObjectStore":
        """The store as another user has it, who may do everything until `refuse`."""
        name = f"u{uuid4().hex}"
        self.client("iam").create_user(UserName=name)
        key = self.client("iam").create_access_key(UserName=name)["AccessKey"]
        user = self._replace(access_key=key["AccessKeyId"], secret_key=key["SecretAccessKey"], user=name)
        self.permit(user)
        return user

    def permit(self, user: "ObjectStore") -> None:
        self.client("iam").put_user_policy(UserName=user.user, PolicyName="all", PolicyDocument=_EVERYTHING)

    def refuse(self, user: "ObjectStore") -> None:
        """From now on each call of the user is answered with 403."""
        self.client("iam").delete_user_policy(UserName=user.user, PolicyName="all")

    def keys(self, bucket: str) -> list[str]:
        """The keys of all objects that can be read."""
        return [each["Key"] for each in self.client("s3").list_objects_v2(Bucket=bucket).get("Contents", [])]

    def uploads(self, bucket: str) -> list[str]:
        """The keys of uploads that have begun and not ended."""
        return [each["Key"] for each in self.client("s3").list_multipart_uploads(Bucket=bucket).get("Uploads", [])]

    def client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=Config(s3={"addressing_style": "path"}),
        )

    @property
    def settings(self) -> dict[str, str]:
        """The properties of an Iceberg catalog."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.path-style-access": "true",
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "client.region": "us-east-1",
        }

    @property
    def storage(self) -> Storage:
        return Storage(self.settings)


@contextmanager
def running_store() -> Iterator[ObjectStore]:
    # It checks credentials after so many calls.
    environment = {**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": str(_CALLS_TO_MAKE_THE_USER)}
    with TemporaryFile() as log:
        # Not a pipe: the server logs each request, and would block once nobody reads.
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=log)
        try:
            yield _with_a_user(_address(server, log))
        finally:
            server.kill()
            server.wait(30)


def _address(server: "subprocess.Popen[bytes]", log: IO[bytes]) -> str:
    deadline = time.monotonic() + _STARTS_WITHIN_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        if found := re.search(rb"http://127\.0\.0\.1:\d+", os.pread(log.fileno(), 10_000, 0)):
            return found[0].decode()
        time.sleep(0.05)
    raise AssertionError(f"the server did not start: {os.pread(log.fileno(), 10_000, 0)!r}")


def _with_a_user(endpoint: str) -> ObjectStore:
    users = ObjectStore(endpoint, "nobody", "nothing").client("iam")
    users.create_user(UserName="tester")
    users.put_user_policy(UserName="tester", PolicyName="all", PolicyDocument=_EVERYTHING)
    key = users.create_access_key(UserName="tester")["AccessKey"]
    return ObjectStore(endpoint, key["AccessKeyId"], key["SecretAccessKey"])
