// Swagger UI on the document of this server. Nothing is fetched from elsewhere, and a key stays on this page.
"use strict";

SwaggerUIBundle({
  url: "/v1/openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  filter: true,
  docExpansion: "list",
  defaultModelsExpandDepth: -1,
  displayRequestDuration: true,
  persistAuthorization: false,
  validatorUrl: null,
  queryConfigEnabled: false, // the address of the page must not choose another document
});
