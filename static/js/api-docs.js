// Starts Swagger UI. A file of its own, since the content security policy allows no inline script.
const root = document.getElementById("swagger-ui");
const isUnsafe = (method) => !["GET", "HEAD", "OPTIONS"].includes((method || "GET").toUpperCase());

SwaggerUIBundle({
  url: root.dataset.schema,
  domNode: root,
  deepLinking: true,
  validatorUrl: null,
  // "Try it out" goes with the session of this browser, so it needs the CSRF token like any form.
  requestInterceptor: (request) => {
    if (isUnsafe(request.method)) request.headers["X-CSRFToken"] = root.dataset.csrf;
    // With a key from "Authorize" the session stays at home: the server refuses both at once.
    if (request.headers.Authorization) request.credentials = "omit";
    return request;
  },
});
