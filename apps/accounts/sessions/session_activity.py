"""Middleware that records when and from where each session is used."""

from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from apps.accounts.sessions.browser_sessions import touch_session


class SessionActivityMiddleware(MiddlewareMixin):
    """Record the use of the session after a response. Requests that did not read their session are not recorded."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if request.session.accessed and response.status_code < 500:
            touch_session(request)
        return response
