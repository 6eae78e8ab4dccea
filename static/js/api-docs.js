// Starts Swagger UI, in a file of its own because the content security policy forbids inline scripts.
const root = document.getElementById("swagger-ui");
const isUnsafe = (method) => !["GET", "HEAD", "OPTIONS"].includes((method || "GET").toUpperCase());

SwaggerUIBundle({
  url: root.dataset.schema,
  domNode: root,
  deepLinking: true,
  validatorUrl: null,
  // "Try it out" uses the session of this browser, so it needs the CSRF token like any form.
  requestInterceptor: (request) => {
    if (isUnsafe(request.method)) request.headers["X-CSRFToken"] = root.dataset.csrf;
    // With a key from "Authorize", the session cookie is not sent: the server rejects requests with both.
    if (request.headers.Authorization) request.credentials = "omit";
    return request;
  },
});
