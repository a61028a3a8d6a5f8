"""Tells how Django, behind uWSGI, understood a request."""

import jwt
from django.conf import settings

SECRET = "a secret of at least thirty-two bytes"

settings.configure(
    ALLOWED_HOSTS=["*"],
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "rest_framework"],
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
    ROOT_URLCONF=__name__,
    SECRET_KEY=SECRET,
)

from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.http import HttpResponse  # noqa: E402
from django.urls import path  # noqa: E402

application = get_wsgi_application()

from rest_framework_simplejwt.authentication import JWTAuthentication  # noqa: E402

secrets = 0


def subject(request):
    try:
        reader = JWTAuthentication()
        token = reader.get_raw_token(reader.get_header(request))
        return jwt.decode(token, SECRET, algorithms=["HS256"])["sub"]
    except Exception:  # Whatever is wrong with the token, it names no caller.
        return ""


def headers(request):
    return " | ".join(sorted(f"{name.lower()}: {value}" for name, value in request.headers.items()))


def told(request, route):
    text = (
        f"route={route}\nmethod={request.method}\nkey={request.headers.get('X-Api-Key', '')}\n"
        f"session={request.COOKIES.get('session', '')}\nparameter={request.GET.get('key', '')}\n"
        f"sub={subject(request)}\nhost={request.get_host()}\naddress={request.headers.get('X-Forwarded-For', '')}\n"
        f"headers={headers(request)}\nsecrets={secrets}\n"
    )
    return HttpResponse(text, status=404 if route == "none" else 200, content_type="text/plain")


def root(request):
    return told(request, "root")


def export(request):
    return told(request, "export" if request.method == "POST" else "none")


def admin(request, rest):
    return told(request, "admin")


def secret(request):
    global secrets
    secrets += 1
    return told(request, "secret")


def nothing(request, rest=""):
    return told(request, "none")


urlpatterns = [
    path("", root),
    path("orders/export", export),
    path("admin/<path:rest>", admin),
    path("secret", secret),
    path("<path:rest>", nothing),
]
