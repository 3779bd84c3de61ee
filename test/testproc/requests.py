#!/usr/bin/python3
"""Run requests through the installed OpenStack Placement, on a database.

    requests.py FILE|DSN < requests.json > answers.json

A request is [method, path, body or null] or, at another microversion than
1.39, [method, path, body, version]; an answer is [status, body or null].
The tables are made, or brought up to date, by Placement's own migrations first.
"""

import json
import re
import sys
import tempfile

from oslo_config import cfg
from placement import conf
from placement import db_api
from placement import deploy
from placement.db.sqlalchemy import migration
import webob

database = sys.argv[1]
if '://' in database:
    database = re.sub('^mysql:', 'mysql+pymysql:', database)
    database = re.sub('^postgres:', 'postgresql+psycopg2:', database)
else:
    database = 'sqlite:///' + database

config = cfg.ConfigOpts()
conf.register_opts(config)
with tempfile.NamedTemporaryFile('w', suffix='.conf') as file:
    file.write('[placement_database]\nconnection = %s\n'
               '[api]\nauth_strategy = noauth2\n'
               % database.replace('$', '$$'))
    file.flush()
    config([], project='placement', default_config_files=[file.name],
           default_config_dirs=[])
db_api.configure(config)
migration.upgrade('head')
app = deploy.loadapp(config)

answers = []
for method, path, body, *version in json.load(sys.stdin):
    request = webob.Request.blank(path, method=method, headers={
        'X-Auth-Token': 'admin', 'Accept': 'application/json',
        'OpenStack-API-Version': 'placement ' + (version or ['1.39'])[0]})
    if body is not None:
        request.content_type = 'application/json'
        request.body = json.dumps(body).encode()
    response = request.get_response(app)
    answers.append([response.status_int,
                    json.loads(response.body) if response.body else None])
json.dump(answers, sys.stdout)
