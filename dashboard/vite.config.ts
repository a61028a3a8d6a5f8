import { defineConfig } from "vite";

// Names without hashes: the server embeds the files by name and forbids caching them.
export default defineConfig({
  base: "/dashboard/",
  build: {
    outDir: "dist",
    // It holds a .gitignore that keeps the folder in a clone.
    emptyOutDir: false,
    assetsInlineLimit: 0,
    modulePreload: false,
    rollupOptions: {
      output: {
        entryFileNames: "dashboard.js",
        assetFileNames: "dashboard[extname]",
        inlineDynamicImports: true,
      },
    },
  },
});
