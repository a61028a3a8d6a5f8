"""Tells how Flask, behind gunicorn, understood a request."""

from flask import Flask, Response, request
from flask_jwt_extended import JWTManager, get_jwt_identity, verify_jwt_in_request

app = Flask(__name__)
app.config["JWT_SECRET_KEY"] = "a secret of at least thirty-two bytes"
JWTManager(app)
secrets = 0


def subject():
    try:
        verify_jwt_in_request()
        return get_jwt_identity()
    except Exception:  # Whatever is wrong with the token, it names no caller.
        return ""


def headers():
    return " | ".join(sorted(f"{name.lower()}: {value}" for name, value in request.headers))


def told(route):
    text = (
        f"route={route}\nmethod={request.method}\nkey={request.headers.get('X-Api-Key', '')}\n"
        f"session={request.cookies.get('session', '')}\nparameter={request.args.get('key', '')}\n"
        f"sub={subject()}\nhost={request.host}\naddress={request.headers.get('X-Forwarded-For', '')}\n"
        f"headers={headers()}\nsecrets={secrets}\n"
    )
    return Response(text, status=404 if route == "none" else 200, mimetype="text/plain")


@app.route("/")
def root():
    return told("root")


@app.route("/orders/export", methods=["POST"])
def export():
    return told("export")


@app.route("/admin/<path:_rest>")
def admin(_rest):
    return told("admin")


@app.route("/secret", methods=["GET", "POST"])
def secret():
    global secrets
    secrets += 1
    return told("secret")


@app.errorhandler(404)
@app.errorhandler(405)
def nothing(_error):
    return told("none")
