import js from "@eslint/js";
import globals from "globals";

export default [
  js.configs.recommended,
  {
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      eqeqeq: "error",
      // Texts of terminals and hidden characters are told by them.
      "no-control-regex": "off",
      "no-unused-vars": ["error", { ignoreRestSiblings: true }],
      "no-var": "error",
      "prefer-const": "error",
    },
  },
  {
    files: ["static/js/**"],
    // htmx is a script of each page, beside the modules.
    languageOptions: { globals: { ...globals.browser, htmx: "readonly" } },
  },
  { files: ["static/js/api-docs.js"], languageOptions: { globals: { SwaggerUIBundle: "readonly" } } },
  { files: ["frontend/**"], languageOptions: { globals: globals.node } },
];
